def measure(quick):
    raise SystemExit("todo")
