"""The byte budget of a pool: how much it may have made and not delivered, as memory comes and goes.

    Gauge (what is available) ─┐
    the pool (what it holds)  ─┼─► policy.allowed_bytes ─► scheduler.budget_bytes ─► the window shrinks or grows
    ranks × live loaders      ─┘

The engine asks before it plans, and only where a full window would weigh something. Between two readings of the machine lies at
least ``policy.BUDGET_INTERVAL_S``, so that a batch costs one look at the clock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from time import monotonic

from stoker._host.local_ranks import local_ranks
from stoker._host.memory_available import Gauge, MemoryAvailable
from stoker._runtime.scheduler import policy


class MemoryBudget:
    """One per pool; used on the thread that iterates. ``bytes`` is what it allows now, 0 for no bound.

    The default is shared with other ranks on this machine and with other loaders of this process that are in the middle of an
    epoch. An idle one is not counted: it makes nothing, and what its arena still occupies is missing from what is available
    already. When it begins an epoch both are told at their next reading.
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
        """The last reading is acted upon: the next one is due in a while."""
        self._due = self._clock() + policy.BUDGET_INTERVAL_S

    @property
    def short(self) -> bool:
        """Whether memory was short at the last reading."""
        return policy.memory_is_short(*self._room)

    def read(self, held_bytes: int, loaders: int) -> None:
        """Look what is available and set ``bytes``. ``held_bytes`` is what the pool takes for batches that nobody has taken.

        Any thread may: only the one that acts on a reading calls ``settle``.
        """
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
        """The arithmetic of the last reading, in words."""
        available = self._room.available_bytes
        if self._given_bytes is not None:
            if self.bytes < self._given_bytes and available is not None:
                return (
                    f"{in_words(self._given_bytes)} were given, cut to half of the "
                    f"{in_words(available + self._held_bytes)} available"
                )
            return f"given: {in_words(self._given_bytes)}"
        if available is None:
            return "unbounded: nothing tells how much memory is available"
        text = f"a quarter of the {in_words(available + self._held_bytes)} available"
        if self._ranks > 1:
            text += f", divided by {self._ranks} local ranks ({self._ranks_from})"
        if self._loaders > 1:
            text += f", divided by {self._loaders} loaders at work"
        return text


def in_words(nbytes: int) -> str:
    """A size as people write it."""
    for unit, scale in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << scale:
            return f"{nbytes / (1 << scale):.3g} {unit}"
    return f"{nbytes} bytes"
