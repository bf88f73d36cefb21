"""stcon inside other people's decode loops, one module a library. See ``docs/integrations.md``.

Nothing here is imported by the rest of the package, and each module imports its library where it is used.
"""
