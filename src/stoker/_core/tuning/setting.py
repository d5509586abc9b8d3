"""A setting: how a loader is run, apart from what it loads. What the tuner chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """Plain and hashable. None means: left to the loader.

    ``engine`` is "stoker" or "torch" (for comparisons). ``workers`` 0 means that the training process makes batches itself.
    ``prefetch`` is batches per worker (``prefetch_factor``). ``threads`` is how many rows a worker fetches at once
    (``threads_per_worker``).
    """

    workers: int = 0
    prefetch: int | None = None
    executor: str = "process"
    start_method: str | None = None
    split: bool | None = None
    threads: int = 1
    pin: bool = False
    engine: str = "stoker"

    @property
    def window(self) -> int:
        """Batches that may be made and not taken."""
        return max(1, self.workers * (self.prefetch or 2))

    @property
    def concurrency(self) -> int:
        """Samples that may be in the making at once."""
        return max(1, self.workers) * self.threads

    def arguments(self) -> dict[str, Any]:
        """What to pass to the engine's DataLoader: only what differs from its defaults, but always ``num_workers``."""
        found: dict[str, Any] = {"num_workers": self.workers}
        if self.pin:
            found["pin_memory"] = True
        if not self.workers:
            return found
        if self.prefetch is not None:
            found["prefetch_factor"] = self.prefetch
        if self.start_method is not None:
            found["multiprocessing_context"] = self.start_method
        if self.engine == "stoker":
            if self.executor != "process":
                found["executor"] = self.executor
            if self.split is not None:
                found["split_batches"] = self.split
            if self.threads > 1:
                found["threads_per_worker"] = self.threads
        found["persistent_workers"] = True
        return found
