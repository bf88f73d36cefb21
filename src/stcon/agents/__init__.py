"""Agents: small tasks done in sandboxed folders with typed tools, many at a time on one batch (``docs/agents.md``)."""
