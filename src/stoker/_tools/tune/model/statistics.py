"""How sure one can be of a ratio of times that were measured in rounds. Logarithms throughout: a half and a double weigh the same.

Within a round, settings ran one after the other on the same machine in the same mood: what is compared is always paired by rounds.
Seeded: the same blocks give the same interval.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from stoker._runtime.simulation.point import Interval

SPREAD = 0.015
"""Of one block's time, as a logarithm: less is never believed, however well a few of them agree."""
FIRST_SPREAD = 0.08
"""While nothing was measured twice."""
SURE = 1.645
"""Standard errors on either side that hold 90 %."""
_MEDIAN = 1.25
"""The standard error of a median, in those of a mean."""
_NORMAL = 1.4826
"""The standard deviation of normal noise, in its median absolute deviation."""
_DRAWS = 300


def logs(times: Mapping[int, float]) -> dict[int, float]:
    """By round. Times that are 0 tell nothing."""
    return {number: math.log(each) for number, each in times.items() if each > 0}


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> list[float]:
    """The logarithms of ``one / other``, of the rounds that have both."""
    first, second = logs(one), logs(other)
    return [first[number] - second[number] for number in sorted(first.keys() & second.keys())]


def spread(series: Iterable[Sequence[float]]) -> float:
    """How far one value lies from its series' middle, typically: of all series together, because each is short.

    A series of two says nothing of outliers and half of the truth about the spread; what is missing is made up for.
    """
    squares, freedom = 0.0, 0
    for values in series:
        if len(values) < 2:
            continue
        middle = median(values)
        robust = _NORMAL * median(abs(each - middle) for each in values) * math.sqrt(1 + 1 / len(values))
        squares += robust * robust * (len(values) - 1)
        freedom += len(values) - 1
    if not freedom:
        return FIRST_SPREAD
    trust = freedom / (freedom + 2)
    return max(SPREAD, math.sqrt(trust * squares / freedom + (1 - trust) * (FIRST_SPREAD / 2) ** 2))


def interval(values: Sequence[float], *, spread: float = SPREAD, seed: int = 0) -> Interval:
    """The median of logarithms as a ratio, with 90 %: by drawing from them again and again, never closer than ``spread`` allows."""
    if not values:
        return Interval(1.0, 0.0, math.inf)
    middle = median(values)
    reach = SURE * _MEDIAN * spread / math.sqrt(len(values))
    low, high = middle - reach, middle + reach
    if len(values) > 2:
        drawn = random.Random(seed)
        medians = sorted(median(drawn.choices(values, k=len(values))) for _ in range(_DRAWS))
        cut = round(_DRAWS * 0.05)
        low, high = min(low, medians[cut]), max(high, medians[-1 - cut])
    return Interval(math.exp(middle), math.exp(low), math.exp(high))


def chained(one: Interval, other: Interval) -> Interval:
    """``one * other``, of ratios that are independent of each other."""
    if min(one.low, other.low) <= 0:
        return Interval(one.middle * other.middle, 0.0, math.inf)
    middle = math.log(one.middle) + math.log(other.middle)
    below = math.hypot(math.log(one.middle / one.low), math.log(other.middle / other.low))
    above = math.hypot(math.log(one.high / one.middle), math.log(other.high / other.middle))
    return Interval(math.exp(middle), math.exp(middle - below), math.exp(middle + above))


def inverse(one: Interval) -> Interval:
    """``1 / one``."""
    return Interval(1 / one.middle, 1 / one.high, 1 / one.low if one.low > 0 else math.inf)


def wider(one: Interval, times: float) -> Interval:
    """The same middle, so many times as far to either side."""
    if one.low <= 0 or not math.isfinite(one.high):
        return one
    return Interval(
        one.middle,
        one.middle * (one.low / one.middle) ** times,
        one.middle * (one.high / one.middle) ** times,
    )


def slower(ratio: Interval, by: float = 1.0) -> bool:
    """Whether a ratio of times is surely above ``by``."""
    return ratio.low > by
