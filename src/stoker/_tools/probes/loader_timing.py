"""Takes batches from loaders and writes down when they came: for the doctor, the tuner and the demo.

Loaders are torch's or stoker's. All of it runs on the main thread of the process that has the target.
"""

from __future__ import annotations

import multiprocessing.connection
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

_clock = time.perf_counter_ns
_LOOK_NS = 50_000_000
"""How often the other side is told that things go on."""
_FAREWELL_S = 0.5
NEVER_NS = 1 << 62
"""As a limit: none."""


@dataclass(slots=True)
class CallTimes:
    """When batches were asked for and when they came; one more moment at the end, when the last step was over."""

    asked_ns: list[int] = field(default_factory=list)
    given_ns: list[int] = field(default_factory=list)
    ended_ns: int = 0

    def counted(self, group: int) -> tuple[int, int, int]:
        """Batches, wall time and time in ``next()``, of as many whole groups as there are.

        Workers that began together deliver together: a group is a batch of each, and a part of one would count too fast or too
        slow. With fewer than two groups all batches count.
        """
        count = len(self.asked_ns)
        if count >= 2 * group:
            count -= count % group
        ends = [*self.asked_ns, self.ended_ns]
        wall_ns = ends[count] - ends[0]
        wait_ns = sum(self.given_ns[each] - self.asked_ns[each] for each in range(count))
        return count, wall_ns, wait_ns


def consume(
    take: Callable[[], Any],
    step: Callable[[Any], Any] | None,
    *,
    seconds: float,
    least: int,
    limit_ns: int,
    burst: int = 1,
    alive: Callable[[], None] = lambda: None,
) -> CallTimes:
    """Take batches until both ``seconds`` are over and ``least`` have come, or the clock says ``limit_ns``; at least one.

    StopIteration ends it before. With ``burst`` so many are taken back to back, and then their steps are done.
    ``alive`` is called now and then.
    """
    times = CallTimes()
    asked, given = times.asked_ns, times.given_ns
    now_ns = _clock()
    enough_ns, look_ns = now_ns + int(seconds * 1e9), now_ns + _LOOK_NS
    while True:
        held = []
        for _ in range(burst):
            asked.append(now_ns)
            try:
                batch = take()
            except StopIteration:
                asked.pop()
                enough_ns, least = 0, 0
                break
            now_ns = _clock()
            given.append(now_ns)
            if step is not None:
                held.append(batch)
            del batch
        while held:
            assert step is not None
            step(held.pop(0))
            now_ns = _clock()
        if now_ns >= look_ns:
            alive()
            look_ns = now_ns + _LOOK_NS
        if (now_ns >= enough_ns and len(asked) >= least) or now_ns >= limit_ns:
            times.ended_ns = now_ns
            return times


def may_have_children() -> None:
    """A sandbox may be a daemonic process, which multiprocessing does not let start others."""
    config = getattr(multiprocessing.current_process(), "_config", {})
    config.pop("daemon", None)


def end_workers(iterator: Any) -> None:
    """End the workers of one of torch's iterators at once.

    torch's own end waits 5 s for every worker that is at work. Here all have the same moment, and are killed after it.
    Its handler of SIGCHLD must not hear of that. An iterator without workers is left as it is.
    """
    from torch._C import _remove_worker_pids

    if getattr(iterator, "_worker_pids_set", False):
        _remove_worker_pids(id(iterator))
        iterator._worker_pids_set = False
    workers = getattr(iterator, "_workers", ())
    done = getattr(iterator, "_workers_done_event", None)
    if done is not None:
        done.set()
        for queue in iterator._index_queues:
            with suppress(Exception):
                queue.put(None)
        _await(workers, _FAREWELL_S)  # one that is killed may hold a lock of the dataset's, for ever
        iterator._workers_done_event = threading.Event()  # or that of the real one
    for worker in workers:
        worker.kill()
    shut_down = getattr(iterator, "_shutdown_workers", None)
    if shut_down is not None:
        with suppress(Exception):
            shut_down()


def _await(workers: Iterable[Any], seconds: float) -> None:
    left = {worker.sentinel for worker in workers}
    deadline = time.monotonic() + seconds
    while left and (patience_s := deadline - time.monotonic()) > 0:
        left -= set(multiprocessing.connection.wait(left, patience_s))
