"""Our own short definitions of a few model families, for decode steps near the memory-bandwidth limit."""
