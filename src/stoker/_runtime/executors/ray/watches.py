"""Finds tasks that are late, and notices the loss of the cluster's head. Used by the bridge, on its thread."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import MutableSet
from statistics import median
from typing import Any, Protocol

from stoker.errors import ClusterError, coded

LATE_NS = 1_000_000_000
"""A task is not late before this."""

LATE_MEDIANS = 3
"""A task is late when it takes so many times as long as recent ones."""

MOST_AGAIN = 4
"""So many tasks are tried a second time at once: each has two results in the object store."""

_RECENT = 32

HEAD_EVERY_NS = 2_000_000_000
HEAD_LOST_NS = 8_000_000_000
"""How often to look for the head, and for how long it may be away: one that is restarted answers again."""

_CONNECT_S = 0.5


class Attempted(Protocol):
    """A task on its way, and the workers that make it."""

    task: Any
    sent_ns: int
    done: bool

    @property
    def workers(self) -> MutableSet[int]: ...


class LateTasks:
    """Knows the tasks on their way. Asks for a second attempt at those that are late, at few of them at a time."""

    def __init__(self) -> None:
        self._flights: dict[Any, None] = {}
        self._took_ns: deque[int] = deque(maxlen=_RECENT)

    def sent(self, flight: Attempted) -> None:
        """A worker has it."""
        self._flights[flight] = None

    def returned(self, flight: Attempted, took_ns: int) -> None:
        """A worker is done with it, or dead."""
        self._took_ns.append(took_ns)
        if not flight.workers or flight.done:
            self._flights.pop(flight, None)

    def find(self, now_ns: int) -> list[Any]:
        """Return the late tasks that nobody tries a second time, those nearest to the head of the line first."""
        waiting = [each for each in self._flights if not each.done]
        patience_ns = max(LATE_NS, LATE_MEDIANS * median(self._took_ns) if self._took_ns else 0)
        late = [each for each in waiting if now_ns - each.sent_ns > patience_ns and len(each.workers) == 1]
        room = MOST_AGAIN - sum(len(each.workers) > 1 for each in waiting)
        if not late or room <= 0:
            return []
        late.sort(key=lambda each: (each.task.epoch, each.task.seq, each.task.part))
        return late[:room]


class HeadWatch:
    """Connects to the head now and then. Ray itself would wait a minute, and then end the whole process."""

    def __init__(self, address: tuple[str, int] | None) -> None:
        self._address = address
        self._next_ns = 0
        self._away_since_ns = 0

    def lost(self, now_ns: int) -> BaseException | None:
        """Return the error if the head has been away for long."""
        if self._address is None or now_ns < self._next_ns:
            return None
        self._next_ns = now_ns + HEAD_EVERY_NS
        try:
            socket.create_connection(self._address, _CONNECT_S).close()
        except OSError:
            self._away_since_ns = self._away_since_ns or now_ns
        else:
            self._away_since_ns = 0
        if not self._away_since_ns or now_ns - self._away_since_ns < HEAD_LOST_NS:
            return None
        host, port = self._address
        told = (
            f"the head node of the Ray cluster ({host}:{port}) does not answer any more: its workers cannot be reached. Start "
            "the cluster again, load the last state_dict() and go on; local workers can take over with executor='process'"
        )
        return coded(ClusterError(told), "STK328")
