"""The certainty of ratios of times that were measured in rounds. All values are logarithms: a half and a double weigh the same.

In a round, settings ran one after the other on the same machine under the same load. So comparisons are always paired by rounds.
Seeded: the same blocks give the same interval.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from stoker._runtime.simulation.point import Interval

SPREAD = 0.015
"""The least assumed spread of one block's time, as a logarithm, however well a few blocks agree."""
FIRST_SPREAD = 0.08
"""The assumed spread while nothing was measured twice."""
SURE = 1.645
"""Standard errors on either side that contain 90 %."""
_MEDIAN = 1.25
"""The standard error of a median, relative to that of a mean."""
_NORMAL = 1.4826
"""The standard deviation of normal noise, relative to its median absolute deviation."""
_DRAWS = 300


def logs(times: Mapping[int, float]) -> dict[int, float]:
    """The logarithms by round. Times of 0 are left out."""
    return {number: math.log(each) for number, each in times.items() if each > 0}


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> list[float]:
    """The logarithms of ``one / other``, for the rounds that have both."""
    first, second = logs(one), logs(other)
    return [first[number] - second[number] for number in sorted(first.keys() & second.keys())]


def spread(series: Iterable[Sequence[float]]) -> float:
    """The typical distance of a value from the middle of its series, over all series together, because each is short.

    A series of two shows no outliers and half of the spread. The result is corrected for that.
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
    """The median of logarithms as a ratio, with its 90 % interval, by bootstrap. It is never narrower than ``spread`` allows."""
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
    """``one * other``, for independent ratios."""
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
    """The same middle, with an interval so many times as wide."""
    if one.low <= 0 or not math.isfinite(one.high):
        return one
    return Interval(
        one.middle,
        one.middle * (one.low / one.middle) ** times,
        one.middle * (one.high / one.middle) ** times,
    )


def slower(ratio: Interval, by: float = 1.0) -> bool:
    """Whether a ratio of times is certainly above ``by``."""
    return ratio.low > by
