"""The memory budget of a pool: how many bytes of undelivered batches it may hold, given the memory available now.

    Gauge (what is available) ─┐
    the pool (what it holds)  ─┼─► policy.allowed_bytes ─► scheduler.budget_bytes ─► the window shrinks or grows
    ranks × live loaders      ─┘

The loop asks before it plans, and only where a full window takes much memory. The machine is read at most once per
``policy.BUDGET_INTERVAL_S``, so a batch usually costs one reading of the clock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from time import monotonic

from stoker._host.local_ranks import local_ranks
from stoker._host.memory_available import Gauge, MemoryAvailable
from stoker._runtime.executors.interrupt_delay import InterruptDelay
from stoker._runtime.scheduler import policy


class MemoryBudget:
    """One per pool, used on the thread that iterates. ``bytes`` is the bound at present; 0 for none.

    The default bound is divided among the ranks on this machine and the loaders of this process that are in an epoch. Idle loaders
    are not counted: they make nothing, and the memory of their arenas is already missing from the memory available.
    """

    def __init__(
        self,
        given_bytes: int | None,
        *,
        gauge: Gauge | None = None,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.bytes = given_bytes or 0
        self._given_bytes = given_bytes
        self._gauge = gauge or Gauge()
        self._clock = clock
        self._due = 0.0
        self._ranks, self._ranks_from = local_ranks(environ)
        self._loaders = 1
        self._room = MemoryAvailable(None, None)
        self._held_bytes = 0

    @property
    def due(self) -> bool:
        """Whether the last reading is too old."""
        return self._clock() >= self._due

    def settle(self) -> None:
        """The last reading was applied: the next one is due after an interval."""
        self._due = self._clock() + policy.BUDGET_INTERVAL_S

    @property
    def short(self) -> bool:
        """Whether memory was short at the last reading."""
        return policy.memory_is_short(*self._room)

    def read(self, held_bytes: int, loaders: int) -> None:
        """Read the memory available and set ``bytes``. ``held_bytes`` is the memory of the pool's undelivered batches.

        Called on any thread. Only the thread that applies a reading calls ``settle``.
        """
        with InterruptDelay():  # it opens files of the kernel
            self._room = self._gauge.read()
        self._held_bytes = held_bytes
        self._loaders = max(1, loaders)
        self.bytes = policy.allowed_bytes(
            given_bytes=self._given_bytes,
            available_bytes=self._room.available_bytes,
            held_bytes=held_bytes,
            sharers=self._ranks * self._loaders,
        )

    @property
    def reason(self) -> str:
        """How the last reading led to ``bytes``, in words."""
        available = self._room.available_bytes
        if self._given_bytes is not None:
            if self.bytes < self._given_bytes and available is not None:
                return (
                    f"{in_words(self._given_bytes)} were given, cut to half of the "
                    f"{in_words(available + self._held_bytes)} available"
                )
            return f"given: {in_words(self._given_bytes)}"
        if available is None:
            return "unbounded: the available memory is unknown"
        text = f"a quarter of the {in_words(available + self._held_bytes)} available"
        if self._ranks > 1:
            text += f", divided by {self._ranks} local ranks ({self._ranks_from})"
        if self._loaders > 1:
            text += f", divided by {self._loaders} loaders at work"
        return text


def in_words(nbytes: int) -> str:
    """A size with its unit, for people."""
    for unit, scale in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << scale:
            return f"{nbytes / (1 << scale):.3g} {unit}"
    return f"{nbytes} bytes"
