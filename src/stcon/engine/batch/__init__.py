"""Many streams at once: continuous batching with ragged forced spans and a prompt cache. See ``docs/batching.md``."""

from stcon.engine.batch.batch import Batch
from stcon.engine.batch.guards import Guards
from stcon.engine.batch.memory import MemoryPlan, plan_memory
from stcon.engine.batch.model import BatchModel
from stcon.engine.batch.request import Event, Failed, Finished, Handle, Piece, Request
from stcon.engine.batch.sessions import SessionRows

__all__ = [
    "Batch",
    "BatchModel",
    "Event",
    "Failed",
    "Finished",
    "Guards",
    "Handle",
    "MemoryPlan",
    "Piece",
    "Request",
    "SessionRows",
    "plan_memory",
]
