"""The queue of requests that wait for rows and memory: first come, first served, with a bounded exception.

The oldest request is let in as soon as it fits. While it does not, younger ones that do may pass it, at most
`MAX_PASSED` of them: rows do not stand empty, and nobody waits for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from stcon.engine.batch.rows import Job

MAX_PASSED = 32


class Waiting:
    """Jobs in the order of their arrival."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> None:
        """A job has come."""
        self._jobs.append(job)

    def take(self, fits: Callable[[Job], bool]) -> Job | None:
        """The next job to let in, taken out; None if none may be."""
        for index, job in enumerate(self._jobs):
            if fits(job):
                for older in list(self._jobs)[:index]:
                    older.passed += 1
                del self._jobs[index]
                return job
            if job.passed >= MAX_PASSED:
                return None
        return None

    def take_cancelled(self) -> list[Job]:
        """The jobs that were cancelled, taken out."""
        cancelled = [job for job in self._jobs if job.handle.is_cancelled]
        if cancelled:
            self._jobs = deque(job for job in self._jobs if not job.handle.is_cancelled)
        return cancelled

    def clear(self) -> list[Job]:
        """All jobs, taken out."""
        jobs, self._jobs = list(self._jobs), deque()
        return jobs
