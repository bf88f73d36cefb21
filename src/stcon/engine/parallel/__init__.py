"""Independent fields in parallel, certified: the sequential output in fewer passes. See ``docs/parallel.md``."""

from stcon.engine.parallel.decoder import Settings
from stcon.engine.parallel.generate import generate
from stcon.engine.parallel.regions import decide
from stcon.engine.parallel.report import Report, Round

__all__ = ["Report", "Round", "Settings", "decide", "generate"]
