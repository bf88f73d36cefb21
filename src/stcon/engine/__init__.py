"""Decoding: sampling, one stream's loop, text pieces. Importing this package imports no torch."""

from stcon.engine.api import generate
from stcon.engine.loop import Generation
from stcon.engine.sampling import Sampling
from stcon.engine.stream import Token

__all__ = ["Generation", "Sampling", "Token", "generate"]
