"""How settings stand after some rounds: who leads, who is as good, whom to take. Pure, of the blocks alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from stoker._runtime.simulation.point import Interval, Point
from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune import knobs
from stoker._tools.tune.model import statistics
from stoker._tools.tune.model.block import Block
from stoker.arguments import NO_WORKERS

TIE = 0.03
"""Settings that are this close are as good as each other: then cost decides."""
CPU_TIE = 0.05
MEMORY_TIE = 0.10
KEEP = 0.20
"""A baseline among the best is kept unless another one takes this much less CPU: a change needs a reason."""
CROWD = 1.5
OBVIOUS = 1.5
"""A setting that takes so much longer than another one needs fewer rounds to be told from it."""
RIVAL = 1.4
"""Intervals are taken this much wider when it is asked whether a repetition would end the same: it is asked often."""
DOUBT = 0.25
"""How far a replay may be off, as a logarithm. While blocks scatter by more than that, it is the better guess."""
REFUTED = 1.5
"""A replay that lies this many times as far off as the interval reaches has been refuted: it weighs nothing."""


@dataclass(frozen=True, slots=True)
class CountedBlock:
    """A block, the round that it was run in, and whether it counts."""

    round: int
    block: Block
    disturbed: bool = False


class Standings:
    """Of all settings with at least one block that counts. Made anew after every round.

    ``expected`` are intervals by the replay. They weigh in where blocks say little, so that noise alone does not decide; in what
    is told of a setting (``ratio``, ``point``) they have no part. ``crowded``: other programs left no CPU idle, and nothing is as
    sure as it looks.
    """

    def __init__(
        self,
        counted: Iterable[CountedBlock],
        baseline: Setting,
        expected: Mapping[Setting, float] | None = None,
        *,
        crowded: bool = False,
    ) -> None:
        self.baseline = baseline
        self._expected = expected or {}
        self._blocks: dict[Setting, dict[int, Block]] = defaultdict(dict)
        self.disturbed: dict[Setting, int] = defaultdict(int)
        for each in counted:
            if each.disturbed:
                self.disturbed[each.block.setting] += 1
            elif each.block.batches:
                self._blocks[each.block.setting][each.round] = each.block
        self._times = {
            setting: {number: block.interval_ns for number, block in blocks.items()}
            for setting, blocks in self._blocks.items()
        }
        self._spread = statistics.spread(self._pairs()) * (CROWD if crowded else 1.0)
        self._known: dict[tuple[Setting, Setting], Interval] = {}

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Those that were measured."""
        return tuple(sorted(self._blocks, key=order))

    def rounds(self, setting: Setting) -> int:
        """In how many rounds it was measured."""
        return len(self._times.get(setting, ()))

    def ratio(self, one: Setting, other: Setting) -> Interval:
        """The time of ``one`` in that of ``other``, by the rounds that have both; else through a third that met either."""
        if one == other:
            return Interval(1.0, 1.0, 1.0)
        if (one, other) not in self._known:
            found = self._ratio(one, other)
            self._known[one, other] = found
            self._known[other, one] = statistics.inverse(found)
        return self._known[one, other]

    def leader(self, among: Iterable[Setting] | None = None) -> Setting:
        """The fastest, by the middle of what was measured. Of those that no round can tell apart, the first in order."""
        candidates = sorted((each for each in (among or self._blocks) if each in self._blocks), key=order)
        best = candidates[0]
        for each in candidates[1:]:
            if self.likely(each, best) < 1.0:
                best = each
        return best

    def likely(self, one: Setting, other: Setting) -> float:
        """The ratio that is taken to be true: the measured one, drawn to the replayed one as far as blocks leave it open."""
        found = self.ratio(one, other)
        known = self._expected.get(one), self._expected.get(other)
        if one == other or not known[0] or not known[1] or found.low <= 0 or not math.isfinite(found.high):
            return found.middle
        told, wide = known[0] / known[1], statistics.wider(found, REFUTED)
        if not wide.low <= told <= wide.high:
            return found.middle
        error = math.log(found.high / found.low) / (2 * statistics.SURE)
        weight = error**2 / (error**2 + DOUBT**2)
        drawn = math.exp((1 - weight) * math.log(found.middle) + weight * math.log(told))
        return min(max(drawn, found.low), found.high)  # what was measured surely is not up to a guess

    def cpu_ns(self, setting: Setting) -> float:
        """Of the training process and all workers, for a batch."""
        return median(each.job_cpu_ns / each.batches for each in self._blocks[setting].values())

    def memory_bytes(self, setting: Setting) -> int | None:
        """The most that it took."""
        told = [each.memory_bytes for each in self._blocks[setting].values() if each.memory_bytes is not None]
        return max(told, default=None)

    def tied(self, among: Iterable[Setting] | None = None) -> tuple[Setting, ...]:
        """The leader, and those that are within 3 % of it."""
        candidates = self._proven(each for each in (among or self.settings) if each in self._blocks)
        leader = self.leader(candidates)
        return tuple(each for each in candidates if self.likely(each, leader) <= 1 + TIE)

    def choice(self, among: Iterable[Setting] | None = None) -> Setting:
        """Of the tied: the least CPU, then memory, fewer workers, the simpler one. The baseline, where that costs little.

        Threads ask something of the dataset and of its random numbers: for that they have to be faster, not only cheaper.
        """
        tied = self.tied(among)
        if self.baseline in tied:
            cheap = min(self.cpu_ns(each) for each in tied)
            if self.cpu_ns(self.baseline) <= cheap * (1 + KEEP):
                return self.baseline
        tied = tuple(each for each in tied if not each.shares) or tied
        left = _least(tied, {each: self.cpu_ns(each) for each in tied}, CPU_TIE)
        memory = {each: self.memory_bytes(each) for each in left}
        left = _least(left, {each: told for each, told in memory.items() if told is not None}, MEMORY_TIE)
        chosen = self._plainer(min(left, key=lambda each: (each.workers, effort(each), order(each))))
        return self.baseline if self._is_doubtful(chosen) else chosen

    def _is_doubtful(self, chosen: Setting) -> bool:
        """Whether leaving the baseline for this one would gain little, and not even that for certain."""
        if self.baseline not in self._blocks:
            return False
        ratio = self.ratio(self.baseline, chosen)
        dearer = self.cpu_ns(self.baseline) > self.cpu_ns(chosen) * (1 + KEEP)
        return (
            not dearer and not statistics.slower(ratio) and self.likely(self.baseline, chosen) <= 1 + 2 * TIE
        )

    def _proven(self, settings: Iterable[Setting]) -> tuple[Setting, ...]:
        """Without those that had one block where others had more: one may be anything."""
        found = tuple(settings)
        least = min(2, max((self.rounds(each) for each in found), default=0))
        return tuple(each for each in found if self.rounds(each) >= least)

    def _plainer(self, chosen: Setting) -> Setting:
        """The same workers with less to write, unless that is surely slower: a refinement has to earn its place."""
        kin = [
            each
            for each in self.settings
            if _family(each) == _family(chosen) and effort(each) < effort(chosen)
        ]
        for each in sorted(kin, key=lambda each: (effort(each), order(each))):
            ratio = self.ratio(each, chosen)
            if not statistics.slower(ratio) and ratio.middle <= 1 + 2 * TIE:
                return each
        return chosen

    def rivals(self, chosen: Setting) -> tuple[Setting, ...]:
        """Settings with other workers, executor or threads that may be as good as the chosen one: a repetition might take them."""
        leader = self.leader()
        found = []
        for each in self.settings:
            if _kind(each) == _kind(chosen):
                continue
            ratio = statistics.wider(self.ratio(each, leader), RIVAL)
            once = min(self.rounds(each), self.rounds(leader)) < 2
            if statistics.slower(ratio, 1 + TIE) and not (once and ratio.middle < OBVIOUS):
                continue
            dearer = self.cpu_ns(each) > self.cpu_ns(chosen) * (1 + CPU_TIE)
            if dearer and self.ratio(chosen, each).high <= 1 + TIE:
                continue
            found.append(each)
        return tuple(found)

    def point(self, setting: Setting, *, predicted_ns: float | None = None, failure: str = "") -> Point:
        """All that is known of a setting."""
        blocks = list(self._blocks.get(setting, {}).values())
        if not blocks:
            nothing = Interval(0.0, 0.0, 0.0)
            return Point(
                setting, nothing, nothing, 0.0, 0.0, None, 0, self.disturbed[setting], predicted_ns, failure
            )
        times = statistics.interval(list(statistics.logs(self._times[setting]).values()), spread=self._spread)
        return Point(
            setting,
            times,
            self.ratio(setting, self.baseline)
            if self.baseline in self._blocks
            else Interval(1.0, 0.0, float("inf")),
            median(each.stall for each in blocks),
            self.cpu_ns(setting),
            self.memory_bytes(setting),
            len(blocks),
            self.disturbed[setting],
            predicted_ns,
            failure,
        )

    def _pairs(self) -> list[list[float]]:
        """Series of every setting against one that was in most rounds: what moved all of them at once is no noise."""
        if not self._times:
            return []
        anchor = max(sorted(self._times, key=order), key=lambda each: len(self._times[each]))
        return [
            statistics.paired(times, self._times[anchor])
            for setting, times in self._times.items()
            if setting != anchor
        ]

    def _ratio(self, one: Setting, other: Setting) -> Interval:
        values = statistics.paired(self._times[one], self._times[other])
        direct = statistics.interval(values, spread=self._spread)
        if len(values) > 1:
            return direct
        bridges = [
            each
            for each in self._times
            if each not in (one, other)
            and len(self._times[each].keys() & self._times[one].keys()) > 1
            and len(self._times[each].keys() & self._times[other].keys()) > 1
        ]
        if bridges:
            bridge = max(sorted(bridges, key=order), key=lambda each: len(self._times[each]))
            return statistics.chained(self.ratio(one, bridge), self.ratio(bridge, other))
        if values:
            return direct
        return statistics.interval(
            [_middle(self._times[one]) - _middle(self._times[other])], spread=2 * self._spread
        )


def order(setting: Setting) -> tuple[int | str, ...]:
    """In which settings are gone through: always the same, whatever is left open in them."""
    return (
        setting.workers,
        setting.engine,
        setting.executor,
        setting.prefetch or 0,
        setting.threads,
        setting.start_method or "",
        -1 if setting.split is None else int(setting.split),
        int(setting.pin),
        repr(setting.extra),
    )


def effort(setting: Setting) -> int:
    """How much has to be written and known for it: arguments that are not the loader's own choice."""
    return sum(knob.effort(setting) for knob in knobs.KNOBS)


def _family(setting: Setting) -> tuple[int, str, int, str]:
    return setting.workers, setting.executor, setting.threads, setting.engine


def _kind(setting: Setting) -> tuple[int, str, int]:
    return setting.workers, setting.executor if setting.workers else NO_WORKERS, setting.threads


def _least(settings: Sequence[Setting], costs: Mapping[Setting, float], tie: float) -> tuple[Setting, ...]:
    """Those whose cost is as small as the smallest, about. One that did not tell its cost is not the smallest."""
    if not costs:
        return tuple(settings)
    bound = min(costs.values()) * (1 + tie)
    return tuple(each for each in settings if each in costs and costs[each] <= bound)


def _middle(times: Mapping[int, float]) -> float:
    return median(statistics.logs(times).values())
