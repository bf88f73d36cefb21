"""`python -m stcon`: the `stcon` command."""

from stcon.cli import main

if __name__ == "__main__":
    main()
