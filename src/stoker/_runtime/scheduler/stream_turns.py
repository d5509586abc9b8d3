"""The order of workers where tickets are bound to them, because each worker has its own stream.

Pure. The scheduler owns it.
"""

from __future__ import annotations

from stoker._runtime.scheduler.types import StreamStart
from stoker.errors import IllegalMove


class StreamTurns:
    """One per scheduler. In order it is round-robin; otherwise the least loaded worker is next."""

    def __init__(self, workers: int, start: StreamStart | None, *, in_order: bool) -> None:
        self._in_order = in_order
        self._live = list(range(workers)) if start is None else list(start.live)
        self._turn = 0 if start is None else start.turn
        self._pulls: dict[int, int] = {} if start is None else dict(start.pulls)
        self.load: dict[int, int] = dict.fromkeys(range(workers), 0)
        """By worker: tasks that it was given and that have no result yet."""
        self.ends: dict[int, tuple[int, object]] = {}
        """By worker: the number of batches of its stream, once known, and the dataset's state at its end."""
        self.given_up: set[int] = set()
        """Workers whose stream ended because they died."""

    def bind(self) -> tuple[int, int]:
        """The worker whose turn it is, and the number of batches that its stream was asked for before."""
        live = self._live
        if not live:
            raise IllegalMove("planned a ticket although every worker's stream has ended")
        turn = self._turn % len(live)
        if not self._in_order:
            load = self.load
            turn = min(
                range(len(live)), key=lambda place: (load.get(live[place], 0), (place - turn) % len(live))
            )
        self._turn = turn + 1
        worker = live[turn]
        pull = self._pulls.get(worker, 0)
        self._pulls[worker] = pull + 1
        self.load[worker] = self.load.get(worker, 0) + 1
        return worker, pull

    def end(self, worker: int) -> bool:
        """Bind no more tickets to this worker. True if its stream was the last one."""
        if worker not in self._live:
            return False
        place = self._live.index(worker)
        del self._live[place]
        if place < self._turn:
            self._turn -= 1
        return not self._live
