"""The subcommands of `stcon`; each module imports what is heavy when its command runs."""
