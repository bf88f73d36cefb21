"""Models: whatever appends tokens to a cached prefix and returns logits. Importing this package imports no torch."""

from stcon.models.base import Model, Session
from stcon.models.load import load_model
from stcon.models.pull import default_model_path

__all__ = ["Model", "Session", "default_model_path", "load_model"]
