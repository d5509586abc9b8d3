"""The standings after some rounds: the leader, equally good settings, and the choice. Pure, from the blocks alone."""

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

NEIGHBOUR = 0.3
"""CPUs that other programs use, from which on it is said: the numbers are not those of an idle machine."""
TIE = 0.03
"""Settings within this share are equally good. Then cost decides."""
CPU_TIE = 0.05
MEMORY_TIE = 0.10
KEEP = 0.20
"""A baseline among the best is kept unless another setting takes this much less CPU: a change needs a reason."""
CROWD = 1.5
OBVIOUS = 1.5
"""A setting that takes so much longer needs fewer rounds to be told apart."""
RIVAL = 1.4
"""The factor by which intervals are widened when it is asked whether a repetition would give the same result."""
DOUBT = 0.25
"""The assumed error of a prediction, as a logarithm. While blocks scatter more than that, the prediction is the better estimate."""
REFUTED = 1.5
"""A prediction that is this many interval widths away from the measurement is wrong and does not count."""


@dataclass(frozen=True, slots=True)
class CountedBlock:
    """A block, its round, and whether it counts."""

    round: int
    block: Block
    disturbed: bool = False


class Standings:
    """The standings of all settings with at least one block that counts. Made again after every round.

    ``expected`` are predicted intervals. They count where blocks say little, so that noise alone does not decide. They are no
    part of the reported values (``ratio``, ``point``). ``crowded``: other programs left no CPU idle, so that nothing is certain.
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
        """The measured settings."""
        return tuple(sorted(self._blocks, key=order))

    def rounds(self, setting: Setting) -> int:
        """The number of rounds in which it was measured."""
        return len(self._times.get(setting, ()))

    def ratio(self, one: Setting, other: Setting) -> Interval:
        """The time of ``one`` relative to ``other``, from rounds that have both; otherwise through a third setting."""
        if one == other:
            return Interval(1.0, 1.0, 1.0)
        if (one, other) not in self._known:
            found = self._ratio(one, other)
            self._known[one, other] = found
            self._known[other, one] = statistics.inverse(found)
        return self._known[one, other]

    def leader(self, among: Iterable[Setting] | None = None) -> Setting:
        """The fastest setting, by the median. Among settings that no round tells apart, the first in order."""
        candidates = sorted((each for each in (among or self._blocks) if each in self._blocks), key=order)
        best = candidates[0]
        for each in candidates[1:]:
            if self.likely(each, best) < 1.0:
                best = each
        return best

    def likely(self, one: Setting, other: Setting) -> float:
        """The likely ratio: the measured one, moved towards the predicted one as far as the blocks are uncertain."""
        found = self.ratio(one, other)
        known = self._expected.get(one), self._expected.get(other)
        if one == other or not known[0] or not known[1] or found.low <= 0 or not math.isfinite(found.high):
            return found.middle
        predicted, wide = known[0] / known[1], statistics.wider(found, REFUTED)
        if not wide.low <= predicted <= wide.high:
            return found.middle
        error = math.log(found.high / found.low) / (2 * statistics.SURE)
        weight = error**2 / (error**2 + DOUBT**2)
        drawn = math.exp((1 - weight) * math.log(found.middle) + weight * math.log(predicted))
        return min(max(drawn, found.low), found.high)  # a certain measurement needs no estimate

    def cpu_ns(self, setting: Setting) -> float:
        """CPU time per batch, of the training process and all workers."""
        return median(each.job_cpu_ns / each.batches for each in self._blocks[setting].values())

    def memory_bytes(self, setting: Setting) -> int | None:
        """The most memory that it took."""
        known = [
            each.memory_bytes for each in self._blocks[setting].values() if each.memory_bytes is not None
        ]
        return max(known, default=None)

    def tied(self, among: Iterable[Setting] | None = None) -> tuple[Setting, ...]:
        """The leader, and the settings within 3 % of it."""
        candidates = self._proven(each for each in (among or self.settings) if each in self._blocks)
        leader = self.leader(candidates)
        return tuple(each for each in candidates if self.likely(each, leader) <= 1 + TIE)

    def choice(self, among: Iterable[Setting] | None = None) -> Setting:
        """Among the tied: the least CPU, then memory, fewer workers, the simpler one. The baseline if that costs little.

        Threads need a dataset that allows them, and change its random numbers. So they have to be faster, not only cheaper.
        """
        tied = self.tied(among)
        if self.baseline in tied:
            cheap = min(self.cpu_ns(each) for each in tied)
            if self.cpu_ns(self.baseline) <= cheap * (1 + KEEP):
                return self.baseline
        tied = tuple(each for each in tied if not each.shares) or tied
        left = _least(tied, {each: self.cpu_ns(each) for each in tied}, CPU_TIE)
        memory = {each: self.memory_bytes(each) for each in left}
        left = _least(
            left, {each: nbytes for each, nbytes in memory.items() if nbytes is not None}, MEMORY_TIE
        )
        chosen = self._plainer(min(left, key=lambda each: (each.workers, effort(each), order(each))))
        return self.baseline if self._is_doubtful(chosen) else chosen

    def _is_doubtful(self, chosen: Setting) -> bool:
        """Whether leaving the baseline for this setting would gain little, or nothing for certain."""
        if self.baseline not in self._blocks:
            return False
        ratio = self.ratio(self.baseline, chosen)
        dearer = self.cpu_ns(self.baseline) > self.cpu_ns(chosen) * (1 + KEEP)
        return (
            not dearer and not statistics.slower(ratio) and self.likely(self.baseline, chosen) <= 1 + 2 * TIE
        )

    def _proven(self, settings: Iterable[Setting]) -> tuple[Setting, ...]:
        """The settings without those that have one block where others have more: a single block may be an outlier."""
        found = tuple(settings)
        least = min(2, max((self.rounds(each) for each in found), default=0))
        return tuple(each for each in found if self.rounds(each) >= least)

    def _plainer(self, chosen: Setting) -> Setting:
        """The same workers with fewer arguments, unless that is certainly slower: a refinement needs a gain."""
        simpler = [
            each
            for each in self.settings
            if _family(each) == _family(chosen) and effort(each) < effort(chosen)
        ]
        for each in sorted(simpler, key=lambda each: (effort(each), order(each))):
            ratio = self.ratio(each, chosen)
            if not statistics.slower(ratio) and ratio.middle <= 1 + 2 * TIE:
                return each
        return chosen

    def rivals(self, chosen: Setting) -> tuple[Setting, ...]:
        """Settings with other workers, executor or threads that may be as good as the chosen one in a repetition."""
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
        """The measurements of a setting."""
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
        """The times of every setting relative to one that was in most rounds. This removes changes that affected all settings."""
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
    """A fixed order of settings, whatever is left open in them."""
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
    """The number of arguments that have to be typed and understood."""
    return sum(knob.effort(setting) for knob in knobs.KNOBS)


def _family(setting: Setting) -> tuple[int, str, int, str]:
    return setting.workers, setting.executor, setting.threads, setting.engine


def _kind(setting: Setting) -> tuple[int, str, int]:
    return setting.workers, setting.executor if setting.workers else NO_WORKERS, setting.threads


def _least(settings: Sequence[Setting], costs: Mapping[Setting, float], tie: float) -> tuple[Setting, ...]:
    """The settings with about the smallest cost. A setting without a known cost is not among them."""
    if not costs:
        return tuple(settings)
    bound = min(costs.values()) * (1 + tie)
    return tuple(each for each in settings if each in costs and costs[each] <= bound)


def _middle(times: Mapping[int, float]) -> float:
    return median(statistics.logs(times).values())
