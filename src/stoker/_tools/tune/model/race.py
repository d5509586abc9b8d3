"""The race: settings run in turns, in short blocks and shuffled rounds, until one is clearly the best. Pure: no clock, seeded.

    race = Race(baseline, settings, cpus=2)
    while (entries := race.ask(left_s)) is not None:
        race.tell([(run(entry), took_s) for entry in entries])

If other programs disturb a round, its disturbed blocks are repeated. Settings that are certainly slower leave, and after some
rounds the slower half does. Settings next to the best one can join later.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from stoker._runtime.simulation.point import Point
from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.model import statistics
from stoker._tools.tune.model.block import Block
from stoker._tools.tune.model.standings import OBVIOUS, RIVAL, TIE, CountedBlock, Standings, order

LEAST_ROUNDS = 3
"""Rounds before a conclusion, unless the result is obvious."""
ROUNDS = 8
"""The number of rounds that the time is divided into."""
HALF = 1.06
"""At these rounds the slower half leaves if it is slower by this."""
_RUNGS = (3, 5)
HOPELESS = "more time would not tell them apart"
_HOPELESS_ROUNDS = 5
_HOPE = 1.5
"""Settings are given up as not separable when that takes so many times the rounds that there is time for."""
_SHORTEST_S = 0.2
_LONGEST_S = 1.0
_LEAST = 4
_SLOW_S = 2.0
"""The longest time of a block, however few batches that allows."""
_START_S = 0.4
"""The additional time of a block, until it is known."""
FOREIGN = 0.35
RUNQ = 0.25
PRESSURE = 0.35
"""A block is disturbed if it is this far above the typical value: CPUs of other programs, and shares of its own time."""
_REPEATS = 2
"""Repetitions of one round."""
_MOST_REPEATS = 6
"""Repetitions in all."""


@dataclass(frozen=True, slots=True)
class RaceEntry:
    """A block to run: its minimum time and its minimum number of batches."""

    setting: Setting
    seconds: float
    least: int


class Race:
    """``ask`` gives the blocks to run, and ``tell`` takes their results. ``stopped`` says why the race ended."""

    def __init__(self, baseline: Setting, settings: Iterable[Setting], *, cpus: float, seed: int = 0) -> None:
        """``expected`` may be filled with predicted intervals of settings, in nanoseconds."""
        self.baseline = baseline
        self.alive = list(dict.fromkeys((baseline, *settings)))
        self.failed: dict[Setting, str] = {}
        self.left: dict[Setting, str] = {}
        """Settings that left, and why."""
        self.expected: dict[Setting, float] = {}
        self.stopped = ""
        self.rounds = 0
        self.repeats = 0
        self._cpus = cpus
        self._random = random.Random(seed)
        self._counted: list[CountedBlock] = []
        self._costs: dict[Setting, list[float]] = {}
        self._again: list[Setting] = []
        self._tries = 0
        self._standings: Standings | None = None

    @property
    def standings(self) -> Standings:
        """The standings as of now."""
        if self._standings is None:
            self._standings = Standings(self._counted, self.baseline, self.expected, crowded=self.crowded)
        return self._standings

    @property
    def best(self) -> Setting | None:
        """The best setting as of now; None while nothing was measured."""
        measured = self.standings.settings
        return self.standings.choice() if measured else None

    @property
    def crowded(self) -> bool:
        """Whether other programs left no CPU idle, so that all measurements are affected."""
        foreign = self.foreign_cpus
        return foreign is not None and foreign > max(0.5, self._cpus - 1)

    @property
    def foreign_cpus(self) -> float | None:
        """CPUs that other programs typically used during a block; None: the kernel does not tell."""
        known = [each.block.foreign_cpus for each in self._counted if each.block.foreign_cpus is not None]
        return median(known) if known else None

    @property
    def tried(self) -> set[Setting]:
        """All settings that ever took part."""
        return {*self.alive, *self.failed, *self.left}

    def join(self, settings: Iterable[Setting]) -> tuple[Setting, ...]:
        """Add settings from the next round on, if they never took part. Returns the added ones."""
        known = self.tried
        new = tuple(each for each in dict.fromkeys(settings) if each not in known)
        self.alive += new
        if new:
            self.stopped = ""
        return new

    def ask(self, left_s: float) -> tuple[RaceEntry, ...] | None:
        """The blocks of the next round, in order; None if the race is over, or there is no time for a round."""
        if self._again:
            again = [each for each in self._again if each in self.alive]
            if again and self.cost_s(again) <= left_s:
                return self._entries(again, left_s)
            self._close_round()
        if not self._decide():
            return None
        if self._is_hopeless(left_s):
            self.stopped = HOPELESS
            return None
        if self.rounds and self.cost_s(self.alive) > left_s:
            self._squeeze(left_s)
            if len(self.alive) < 2 or self.cost_s(self.alive) > left_s:
                self.stopped = "budget"
                return None
        order = self.alive.copy()
        self._random.shuffle(order)
        if not self.rounds:  # if the time ends in the first round, the baseline has to be known
            order.remove(self.baseline)
            order.insert(0, self.baseline)
        return self._entries(order, left_s)

    def tell(self, results: Sequence[tuple[Block, float]]) -> None:
        """Take the results of blocks, each with the seconds that it took in all. There may be fewer than asked for, for lack of
        time.
        """
        self._standings = None
        hit = []
        for block, took_s in results:
            setting = block.setting
            if block.failure or not block.batches:
                self._fail(setting, block.failure or "no batch came")
                continue
            self._costs.setdefault(setting, []).append(took_s)
            disturbed = self._is_disturbed(block)
            if disturbed:
                hit.append(setting)
            # A repetition replaces the disturbed block before it, of the same round.
            self._counted.append(CountedBlock(self.rounds, block, disturbed))
        may = self._tries < _REPEATS and self.repeats < _MOST_REPEATS and not self.crowded
        if hit and may and len(results) > 0:
            self._again = hit
            self._tries += 1
            self.repeats += 1
        else:
            self._keep(hit)
            self._close_round()

    def points(self) -> tuple[Point, ...]:
        """All settings that were measured or failed, in order."""
        standings = self.standings
        settings = sorted({*standings.settings, *self.failed}, key=order)
        return tuple(standings.point(each, failure=self.failed.get(each, "")) for each in settings)

    def _entries(self, settings: Sequence[Setting], left_s: float) -> tuple[RaceEntry, ...]:
        to_come = max(2, ROUNDS - self.rounds)
        seconds = left_s / (to_come * max(1, len(self.alive))) - self._overhead_s()
        seconds = min(_LONGEST_S, max(_SHORTEST_S, seconds))
        return tuple(RaceEntry(each, seconds, self._least(each)) for each in settings)

    def _least(self, setting: Setting) -> int:
        """Workers deliver in bursts, so a block should contain a few of them, unless that takes too long."""
        wanted = max(_LEAST, 2 * setting.workers)
        known = [each.block.interval_ns for each in self._counted if each.block.setting == setting]
        if not known:
            return _LEAST
        return max(2, min(wanted, int(_SLOW_S * 1e9 / max(1.0, median(known)))))

    def _overhead_s(self) -> float:
        beyond = [
            max(0.0, costs[-1] - self._block_s(setting))
            for setting, costs in self._costs.items()
            if len(costs) > 1
        ]
        return median(beyond) if beyond else _START_S

    def _block_s(self, setting: Setting) -> float:
        return next(
            (each.block.wall_ns / 1e9 for each in reversed(self._counted) if each.block.setting == setting),
            _SHORTEST_S,
        )

    def cost_s(self, settings: Iterable[Setting]) -> float:
        """The time of a round. The first block of a setting starts workers; it is estimated from other settings."""
        firsts = [costs[0] for costs in self._costs.values()] or [_SHORTEST_S + _START_S]
        total = 0.0
        for each in settings:
            costs = self._costs.get(each)
            total += max(firsts) if not costs else median(costs[1:] or costs)
        return total

    def _is_disturbed(self, block: Block) -> bool:
        """Whether a block is above typical values: the machine's for other programs' CPUs, the setting's own for the rest."""
        everybody = [each.block for each in self._counted]
        own = [each for each in everybody if each.setting == block.setting]
        if len(everybody) >= 3 and _beyond(
            block.foreign_cpus, [each.foreign_cpus for each in everybody], FOREIGN
        ):
            return True
        if len(own) < 2:
            return False
        return _beyond(block.runq_share, [each.runq_share for each in own], RUNQ) or _beyond(
            block.pressure, [each.pressure for each in own], PRESSURE
        )

    def _keep(self, settings: Sequence[Setting]) -> None:
        """Count blocks that stay disturbed: the machine is always like that."""
        for setting in settings:
            at = max(i for i, each in enumerate(self._counted) if each.block.setting == setting)
            self._counted[at] = CountedBlock(self.rounds, self._counted[at].block)

    def _close_round(self) -> None:
        settled = {
            each.block.setting for each in self._counted if each.round == self.rounds and not each.disturbed
        }
        self._keep([each for each in self._again if each in self.alive and each not in settled])
        self._again, self._tries = [], 0
        self.rounds += 1
        self._standings = None
        self._drop()

    def _fail(self, setting: Setting, reason: str) -> None:
        self.failed[setting] = reason
        self._counted = [each for each in self._counted if each.block.setting != setting]
        if setting in self.alive:
            self.alive.remove(setting)
        if setting in self._again:
            self._again.remove(setting)

    def _drop(self) -> None:
        """Remove settings that are certainly slower than the best, and at some rounds the slower half."""
        standings = self.standings
        measured = [each for each in self.alive if standings.rounds(each)]
        if len(measured) < 2:
            return
        best = standings.leader(measured)
        for each in measured:
            ratio = statistics.wider(standings.ratio(each, best), RIVAL)
            rounds = standings.rounds(each)
            obvious = rounds >= 2 and ratio.middle > OBVIOUS and ratio.low > 1 + TIE
            if obvious or (rounds >= LEAST_ROUNDS and statistics.slower(ratio, 1 + TIE)):
                self._leave(each, f"{ratio.middle - 1:.0%} slower than the best")
        if self.rounds in _RUNGS:
            ranked = sorted(
                (each for each in self.alive if standings.rounds(each) >= LEAST_ROUNDS),
                key=lambda each: standings.ratio(each, best).middle,
            )
            for each in ranked[max(2, (len(ranked) + 1) // 2) :]:
                ratio = standings.ratio(each, best)
                if ratio.middle > HALF and ratio.low > 1.0:
                    self._leave(each, f"{ratio.middle - 1:.0%} slower than the best, in the worse half")

    def _leave(self, setting: Setting, why: str) -> None:
        if setting in self.alive:
            self.alive.remove(setting)
            self.left[setting] = why

    def _squeeze(self, left_s: float) -> None:
        """If there is little time left, continue with the best few only."""
        standings = self.standings
        if not standings.settings:
            return
        best = standings.leader()
        ranked = sorted(
            self.alive, key=lambda each: standings.ratio(each, best).middle if standings.rounds(each) else 9.0
        )
        while len(ranked) > 2 and self.cost_s(ranked) > left_s:
            ranked.pop()
        if self.cost_s(ranked) <= left_s:
            for each in set(self.alive).difference(ranked):
                self._leave(each, "no time was left for it")

    def _decide(self) -> bool:
        """Whether to go on."""
        standings = self.standings
        if not self.alive:
            self.stopped = "failed" if self.failed else "one left"
            return False
        new = [each for each in self.alive if not standings.rounds(each)]
        if new or not self.rounds:
            return True
        if len(self.alive) == 1:
            self.stopped = "one left"
            return False
        if min(standings.rounds(each) for each in self.alive) >= LEAST_ROUNDS and self._is_settled(standings):
            self.stopped = "the rest are within 3 %"
            return False
        return True

    def _is_hopeless(self, left_s: float) -> bool:
        """Whether all that is left differs by less than the time that is left could show: an interval narrows with the root of
        the rounds.
        """
        standings = self.standings
        rounds = min((standings.rounds(each) for each in self.alive), default=0)
        if rounds < _HOPELESS_ROUNDS or len(self.alive) < 2:
            return False
        possible = rounds + left_s / max(0.01, self.cost_s(self.alive))
        best = standings.leader(self.alive)
        for each in self.alive:
            if each == best:
                continue
            ratio = standings.ratio(each, best)
            half = (ratio.high - ratio.low) / 2
            to_show = max(ratio.middle - 1 - TIE, 1 + 1.5 * TIE - ratio.middle, 0.005)
            if rounds * (half / to_show) ** 2 <= _HOPE * possible:
                return False
        return True

    def _is_settled(self, standings: Standings) -> bool:
        best = standings.leader(self.alive)
        return all(standings.ratio(each, best).high <= 1 + 1.5 * TIE for each in self.alive) and all(
            standings.ratio(each, best).middle <= 1 + TIE for each in self.alive
        )


def _beyond(value: float | None, known: Sequence[float | None], by: float) -> bool:
    measured = [each for each in known if each is not None]
    return value is not None and bool(measured) and value > median(measured) + by
