"""A discrete-event simulation of workers, window, CPUs and a training loop. The replay runs it.

CPU parts end at a *virtual* time, which advances as fast as one runner does. So nothing has to be moved when the number of
runners changes. Waits end at a real time. There is a heap for each. An event costs the logarithm of the number of parts in
progress.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import cycle
from typing import NamedTuple

from stoker._runtime.scheduler.policy import parts_for
from stoker._runtime.scheduler.row_ranges import row_ranges, share_ranges

SLICES = 2
"""A batch alternates between waiting and computing, row by row. So many turns are enough; more only cost time."""

_GOLDEN = 0.6180339887498949
"""Spreads the starting points of batches: in practice, workers do not wait and compute in step with each other."""

_HANDLING, _STEP_CPU, _STEP_OFF = -1, -2, -3
"""Marks a job of the training process, in place of a ticket's number."""


class BatchTiming(NamedTuple):
    """A batch in one worker: its CPU time, its waits, the CPUs that it uses at once, and its slowest row's wait."""

    cpu_ns: float
    off_ns: float
    width: float = 1.0
    slow_ns: float = 0.0


class SimulationProgress(NamedTuple):
    """The progress of a simulation."""

    now_ns: float
    batches: int
    """Batches whose step is over."""
    stalled_ns: float
    busy_ns: float
    """Busy time of all workers together."""
    events: int = 0
    """Work of the simulation so far: waits and computations that began."""


class _SimulatedTask:
    """A part of a ticket, or a part of the training loop: turns of waiting and computing."""

    __slots__ = ("cpu_ns", "lag_ns", "number", "off_ns", "turns", "wait_ns", "width")

    def __init__(self, number: int, cpu_ns: float, off_ns: float, width: float = 1.0, turns: int = 1) -> None:
        self.number = number
        self.cpu_ns = cpu_ns / turns
        self.off_ns = self.wait_ns = off_ns / turns
        self.lag_ns = 0.0
        self.width = width
        self.turns = turns

    def shift(self, share: float) -> None:
        """Move this much of the first wait behind the last turn."""
        self.lag_ns = self.wait_ns * share
        self.wait_ns -= self.lag_ns


class Simulation:
    """Workers are alike, so only the number of idle ones is kept. The parent sees finished parts when it looks, as the engine
    does.

    ``split_rows`` is the number of rows of a batch that idle workers may share, 0 if they may not. ``bound`` gives every worker
    its own queue, filled round-robin, as torch does; otherwise all pull from one. Up to ``deepest`` the window grows if the loop
    has no batch, a later batch is ready, and a worker is idle. That is the scheduler's rule.
    """

    def __init__(
        self,
        makings: list[BatchTiming],
        *,
        workers: int,
        window: int,
        capacity: float,
        in_order: bool,
        split_rows: int,
        parent_ns: float,
        step_cpu_ns: float,
        step_off_ns: float,
        burst: int,
        bound: bool = False,
        deepest: int = 0,
    ) -> None:
        # A batch that takes no time at all would be made endlessly often at one moment.
        self._source = cycle(
            [each if each.cpu_ns + each.off_ns >= 1.0 else BatchTiming(0.0, 1.0) for each in makings]
        )
        self._expected_ns = int(
            sum(each.cpu_ns / each.width + each.off_ns for each in makings) / len(makings)
        )
        self._workers = self._idle = workers
        self._lines: list[deque[_SimulatedTask]] = [deque() for _ in range(workers if bound else 1)]
        self._idle_of = [1] * workers if bound else [workers]
        self._window = max(1, window)
        self._deepest = deepest
        self._capacity = capacity
        self._in_order = in_order
        self._ranges = row_ranges(split_rows)
        self._rows = max(1, split_rows)
        self._parent_ns = parent_ns
        self._step_cpu_ns = step_cpu_ns
        self._step_off_ns = step_off_ns
        self._burst = max(1, burst)
        self._now = self._virtual = self._runners = 0.0
        self._rate = 1.0
        self._order = 0
        self._computing: list[tuple[float, int, _SimulatedTask]] = []
        self._waiting: list[tuple[float, int, _SimulatedTask]] = []
        self._planned = self._taken = self._stepped = 0
        self._open_parts: dict[int, int] = {}
        self._parts_out = 0
        self._arrived: list[int] = []
        self._held: set[int] = set()
        self._head = self._ready = self._pulled = 0
        self._starving = False
        self._stalled_ns = self._busy_ns = 0.0
        self._plan()
        self._pull()

    def progress(self) -> SimulationProgress:
        return SimulationProgress(self._now, self._stepped, self._stalled_ns, self._busy_ns, self._order)

    def advance(self, batches: int) -> None:
        """Advance until the steps of so many batches are over."""
        computing, waiting = self._computing, self._waiting
        while self._stepped < batches:
            rate = self._rate
            end = self._now + (computing[0][0] - self._virtual) / rate if computing else 0.0
            if waiting and (not computing or waiting[0][0] <= end):
                until, _, job = heappop(waiting)
                self._pass(until)
                self._compute(job)
            else:
                self._pass(end)
                virtual, _, job = heappop(computing)
                self._virtual = virtual
                self._run(-job.width)
                self._turn_over(job)

    def _pass(self, until: float) -> None:
        passed = until - self._now
        if passed > 0.0:
            self._now = until
            self._virtual += passed * self._rate
            self._busy_ns += passed * (self._workers - self._idle)
            if self._starving:
                self._stalled_ns += passed

    def _run(self, width: float) -> None:
        """Change the number of runners, and so the speed of each."""
        self._runners = runners = max(0.0, self._runners + width)
        self._rate = 1.0 if runners <= self._capacity else self._capacity / runners

    # Jobs

    def _begin(self, job: _SimulatedTask) -> None:
        if job.wait_ns > 0.0:
            self._order += 1
            heappush(self._waiting, (self._now + job.wait_ns, self._order, job))
        else:
            self._compute(job)

    def _compute(self, job: _SimulatedTask) -> None:
        if job.cpu_ns > 0.0:
            self._order += 1
            self._run(job.width)
            heappush(self._computing, (self._virtual + job.cpu_ns / job.width, self._order, job))
        else:
            self._turn_over(job)

    def _turn_over(self, job: _SimulatedTask) -> None:
        job.turns -= 1
        if job.turns > 0:
            job.wait_ns = job.off_ns
            self._begin(job)
        elif job.lag_ns > 0.0:
            job.wait_ns, job.cpu_ns, job.lag_ns = job.lag_ns, 0.0, 0.0
            self._begin(job)
        elif job.number >= 0:
            self._made(job.number)
        elif job.number == _HANDLING:
            self._handled()
        elif job.number == _STEP_CPU and self._step_off_ns > 0.0:
            self._begin(_SimulatedTask(_STEP_OFF, 0.0, self._step_off_ns))
        else:
            self._step_over()

    # Workers

    def _plan(self) -> None:
        """Give tickets up to the window to idle workers, whole or in parts."""
        while self._planned - self._taken < self._window:
            number = self._planned
            self._planned += 1
            cpu_ns, off_ns, width, slow_ns = next(self._source)
            parts = 1
            if len(self._ranges) > 1:
                idle = max(0, self._workers - self._parts_out)
                parts = parts_for(
                    idle=idle, ranges=len(self._ranges), first=False, expected_ns=self._expected_ns
                )
            self._open_parts[number] = parts
            self._parts_out += parts
            turns = SLICES if cpu_ns > 0.0 and off_ns > 0.0 else 1
            spans = share_ranges(self._ranges, parts) if parts > 1 else ((0, self._rows),)
            for place, (start, stop) in enumerate(spans):
                share = (stop - start) / self._rows
                # The slowest row is in one part, and cannot be divided.
                alone_ns = slow_ns if place == number % parts else 0.0
                wait_ns = (off_ns - slow_ns) * share + alone_ns
                job = _SimulatedTask(number, cpu_ns * share, wait_ns, width, turns)
                if turns > 1:
                    job.shift(number * _GOLDEN % 1.0)
                self._lines[number % len(self._lines)].append(job)
            self._staff(number % len(self._lines))

    def _staff(self, line: int) -> None:
        queue = self._lines[line]
        while self._idle_of[line] and queue:
            self._idle_of[line] -= 1
            self._idle -= 1
            self._begin(queue.popleft())

    def _made(self, number: int) -> None:
        line = number % len(self._lines)
        self._idle_of[line] += 1
        self._idle += 1
        self._staff(line)
        self._arrived.append(number)
        if self._starving:
            self._pull()

    # The training loop

    def _look(self) -> None:
        """Note the finished parts; the next batch in order may be ready."""
        for number in self._arrived:
            self._parts_out -= 1
            if self._window < self._deepest and number != self._head and self._parts_out < self._workers:
                self._window += 1
            left = self._open_parts[number] - 1
            if left:
                self._open_parts[number] = left
                continue
            del self._open_parts[number]
            if not self._in_order:
                self._ready += 1
                continue
            self._held.add(number)
            while self._head in self._held:
                self._held.remove(self._head)
                self._head += 1
                self._ready += 1
        self._arrived.clear()

    def _pull(self) -> None:
        """Take the next batch if it is ready; otherwise wait for it."""
        while True:
            if not self._ready:
                self._look()
            self._starving = not self._ready
            if self._starving:
                self._plan()
                return
            self._ready -= 1
            self._taken += 1
            self._plan()
            if self._parent_ns > 0.0:
                self._begin(_SimulatedTask(_HANDLING, self._parent_ns, 0.0))
                return
            if self._after_batch():
                return

    def _handled(self) -> None:
        if not self._after_batch():
            self._pull()

    def _after_batch(self) -> bool:
        """A step begins when its last batch is there. False: continue with the next batch at once."""
        self._pulled += 1
        if self._pulled < self._burst:
            return False
        if self._step_cpu_ns > 0.0:
            self._begin(_SimulatedTask(_STEP_CPU, self._step_cpu_ns, 0.0))
            return True
        if self._step_off_ns > 0.0:
            self._begin(_SimulatedTask(_STEP_OFF, 0.0, self._step_off_ns))
            return True
        self._pulled = 0
        self._stepped += self._burst
        return False

    def _step_over(self) -> None:
        self._pulled = 0
        self._stepped += self._burst
        self._pull()
