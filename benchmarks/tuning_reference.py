"""What a tuner's answer is held against: settings run in interleaved rounds, by the tuner's instrument and nothing else of it.

A grid is run whole twice; what took over 1.3 times as long as the fastest leaves, and the rest goes on for more rounds. Whoever is
best there is so by luck to some part: it meets the answer again, in fresh rounds, and those decide.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import log
from statistics import median
from typing import Any

from benchmarks.machine import cores
from stoker._runtime.simulation.point import Interval
from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.model.block import Block
from stoker._tools.tune.model.statistics import interval, spread
from stoker._tools.tune.session import ProbeLost, TuneSession

BLOCK_S = 0.4
LEAST = 4
NEAR = 1.3
SURE = 0.08
"""How wide the interval of a ratio may be: from 0.96 to 1.04, say."""
DISTURBED = 0.4
"""A block during which others had more of the machine is run again, and the less disturbed one counts."""
_AGAIN = 2
_BESIDE = 3
_LIFETIME = 2
"""Rounds of a duel that a pool lives."""
_PATIENCE_S = 10.0
"""For all such blocks of a grid or a duel: on a machine that is never idle they end nothing."""
_LIMIT_S = 8.0
_LOADING_S = 600.0


@dataclass
class Times:
    """Of one setting: the time between two batches by round, and what others used of the machine meanwhile."""

    setting: Setting
    rounds: dict[int, float] = field(default_factory=dict)
    foreign: list[float] = field(default_factory=list)
    cpu_ns: list[float] = field(default_factory=list)
    failure: str = ""

    @property
    def typical_ns(self) -> float:
        return median(self.rounds.values()) if self.rounds else float("inf")

    def over(self, other: Times) -> list[float]:
        """Logarithms of the ratio to another setting, of the rounds that have both."""
        both = sorted(self.rounds.keys() & other.rounds.keys())
        return [log(self.rounds[number] / other.rounds[number]) for number in both]


class Course:
    """A sandbox that has loaded the workload, and the pools of all settings that are still in it. Close it."""

    def __init__(self, target: str, *, step_s: float | None, step: str | None, seed: int = 0) -> None:
        self._session = TuneSession(target, batch_size=None, budget_s=_LOADING_S)
        self.baseline = self._session.open().setting
        self._step_ns = int((step_s or 0.0) * 1e9)
        self._step = step
        self._random = random.Random(seed)
        self._round = 0
        self._most = DISTURBED * cores()
        self._patience_s = _PATIENCE_S

    def close(self) -> None:
        """End the sandbox. Idempotent."""
        self._session.close()

    def grid(self, settings: Iterable[Setting], *, rounds: int) -> list[Times]:
        """All settings, best first. Pools of what has left are ended."""
        known = [Times(each) for each in settings]
        left = known
        for number in range(rounds):
            if number > 1:
                best_ns = min((each.typical_ns for each in left), default=0.0)
                for each in [each for each in left if each.typical_ns > NEAR * best_ns]:
                    left.remove(each)
                    self._end(each.setting)
            left = self._run(left)
        for each in left:
            self._end(each.setting)
        return sorted(known, key=lambda each: (-len(each.rounds), each.typical_ns))

    def duel(self, settings: Sequence[Setting], *, rounds: int) -> list[Times]:
        """The first two settings, in fresh rounds; others run in the first few of these. Pools begin anew every other round.

        Two loaders of the same setting differ by up to 5 % for as long as they live (where their memory and processes happen to
        lie): with one pool each the luck of its start would decide.
        Twice as many rounds as said, where the second's time over the first's is not known to ``SURE`` by then.
        """
        known = [Times(each) for each in settings]
        for number in range(2 * rounds):
            if number >= rounds and (len(known) < 2 or _width(ratio(known[1], known[0], known)) < SURE):
                break
            if number and number % _LIFETIME == 0:
                for each in known:
                    self._end(each.setting)
            self._run(known if number < _BESIDE else known[:2])
        for each in known:
            self._end(each.setting)
        return known

    def _run(self, known: Sequence[Times]) -> list[Times]:
        """A round, in an order of its own; those that did not fail."""
        self._round += 1
        shuffled = [each for each in known if not each.failure]
        self._random.shuffle(shuffled)
        for each in shuffled:
            block = self._block(each.setting)
            for _ in range(_AGAIN):
                if (block.foreign_cpus or 0.0) <= self._most or self._patience_s <= 0:
                    break
                began = time.monotonic()
                again = self._block(each.setting)
                self._patience_s -= time.monotonic() - began
                block = again if (again.foreign_cpus or 0.0) < (block.foreign_cpus or 0.0) else block
            if block.failure or not block.batches:
                each.failure = block.failure or "no batch came"
                continue
            each.rounds[self._round] = block.interval_ns
            each.cpu_ns.append(block.job_cpu_ns / block.batches)
            if block.foreign_cpus is not None:
                each.foreign.append(block.foreign_cpus)
        return [each for each in known if not each.failure]

    def _block(self, setting: Setting) -> Block:
        trial: dict[str, Any] = {
            "setting": setting.as_dict(), "seconds": BLOCK_S, "least": LEAST, "limit_s": _LIMIT_S,
            "step_ns": self._step_ns, "step": self._step or False,
        }  # fmt: skip
        try:
            found: Block = self._session.ask(
                "block", limit_s=2 * _LIMIT_S, within_s=3 * _LIMIT_S, trial=trial
            )
        except ProbeLost as error:
            return Block(setting, 0, 0, 0, failure=str(error))
        return found

    def _end(self, setting: Setting) -> None:
        try:
            self._session.ask("block", limit_s=_LIMIT_S, trial={"setting": setting.as_dict(), "close": True})
        except ProbeLost:
            return


def _width(found: Interval) -> float:
    return log(found.high / found.low) if found.low > 0 else float("inf")


def ratio(one: Times, other: Times, everybody: Sequence[Times]) -> Interval:
    """``one`` over ``other``, with 90 %. How far single rounds scatter is taken from all that ran in them."""
    first = everybody[0]
    scatter = spread([each.over(first) for each in everybody if each is not first])
    return interval(one.over(other), spread=scatter)


def compute_grid(baseline: Setting, *, full: bool = False) -> list[Setting]:
    """For work that needs CPUs."""
    counts = [Setting(workers, prefetch=2) for workers in (1, 2, 3, 4, 6)]
    deeper = [Setting(1, prefetch=8), Setting(2, prefetch=4), Setting(2, prefetch=8), Setting(3, prefetch=4)]
    threads = [Setting(workers, prefetch=2, executor="thread") for workers in (1, 2, 4)]
    found = [Setting(0), *counts, *deeper, Setting(2, prefetch=2, split=False), *threads]
    if full:
        found += [Setting(workers, prefetch=prefetch) for workers in (1, 2, 3, 4) for prefetch in (4, 8)]
        found += [Setting(workers, prefetch=2, split=False) for workers in (3, 4)]
        found += [Setting(workers, prefetch=8, executor="thread") for workers in (1, 2, 4)]
        found += [Setting(workers, prefetch=2, threads=2) for workers in (1, 2)]
    return list(dict.fromkeys([baseline, *found]))


def waiting_grid(baseline: Setting, *, full: bool = False) -> list[Setting]:
    """For work that waits: past the cores, by processes, threads, and threads of processes."""
    counts = [Setting(workers, prefetch=2) for workers in (2, 4, 8, 16)]
    deeper = [Setting(4, prefetch=4), Setting(8, prefetch=4)]
    threads = [Setting(workers, prefetch=2, executor="thread") for workers in (8, 16, 32)]
    hands = [
        Setting(workers, prefetch=2, threads=lanes) for workers, lanes in ((1, 16), (2, 8), (2, 16), (4, 16))
    ]
    found = [Setting(0), *counts, *deeper, *threads, *hands]
    if full:
        found += [Setting(workers, prefetch=2) for workers in (1, 3, 6, 12, 24)]
        found += [Setting(workers, prefetch=prefetch) for workers in (2, 4, 8, 16) for prefetch in (4, 8)]
        found += [Setting(workers, prefetch=4, executor="thread") for workers in (4, 8, 16, 32)]
        found += [
            Setting(workers, prefetch=prefetch, threads=lanes)
            for workers in (1, 2, 4)
            for lanes in (8, 16)
            for prefetch in (2, 4)
        ]
    return list(dict.fromkeys([baseline, *found]))
