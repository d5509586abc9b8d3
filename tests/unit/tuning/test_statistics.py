"""Ratios of times, and how sure one can be of them."""

from __future__ import annotations

import math
import random

import pytest

from stoker._runtime.simulation.point import Interval
from stoker._tools.tune.model import statistics


def test_only_rounds_that_have_both_are_compared():
    one, other = {0: 2.0, 1: 4.0, 3: 1.0}, {0: 1.0, 1: 2.0, 2: 9.0, 3: 0.0}
    assert statistics.paired(one, other) == pytest.approx([math.log(2)] * 2)


def test_the_same_blocks_give_the_same_interval():
    values = [random.Random(3).gauss(0.2, 0.05) for _ in range(9)]
    assert statistics.interval(values, seed=1) == statistics.interval(values, seed=1)


def test_an_interval_holds_its_middle_and_is_wide_while_little_is_known():
    few, many = statistics.interval([0.1], spread=0.05), statistics.interval([0.1] * 16, spread=0.05)
    for each in (few, many):
        assert each.low < each.middle < each.high
        assert each.middle == pytest.approx(math.exp(0.1))
    assert few.high / few.low > many.high / many.low
    assert statistics.interval([]).high == math.inf


def test_agreement_by_chance_is_not_believed():
    assert statistics.interval([0.0, 0.0, 0.0]).high > 1.0


def test_nine_in_ten_intervals_hold_the_truth():
    drawn, hits = random.Random(7), 0
    for _ in range(200):
        values = [drawn.gauss(0.3, 0.1) for _ in range(7)]
        found = statistics.interval(values, spread=statistics.spread([values]))
        hits += found.low <= math.exp(0.3) <= found.high
    assert hits >= 170


def test_one_outlier_moves_an_interval_little():
    calm = [0.1, 0.11, 0.09, 0.1, 0.105, 0.095, 0.1]
    assert statistics.interval([*calm, 2.0]).middle == pytest.approx(math.exp(0.1), rel=0.01)


def test_the_spread_is_what_all_series_have_together():
    assert statistics.spread([]) == statistics.FIRST_SPREAD
    assert statistics.spread([[1.0], [2.0]]) == statistics.FIRST_SPREAD
    drawn = random.Random(1)
    series = [[drawn.gauss(at, 0.1) for _ in range(8)] for at in range(5)]
    assert 0.05 < statistics.spread(series) < 0.2
    assert statistics.spread([[0.5] * 20]) >= statistics.SPREAD


def test_a_ratio_through_a_third_is_less_sure():
    one, other = Interval(2.0, 1.8, 2.2), Interval(0.5, 0.45, 0.55)
    found = statistics.chained(one, other)
    assert found.middle == pytest.approx(1.0)
    assert found.low < 1.0 * 1.8 / 2.0
    assert found.high > 1.0 * 2.2 / 2.0
    unknown = statistics.chained(one, Interval(1.0, 0.0, math.inf))
    assert (unknown.low, unknown.high) == (0.0, math.inf)


def test_inverse_and_what_is_surely_so():
    back = statistics.inverse(Interval(2.0, 1.5, 4.0))
    assert (back.middle, back.low) == (0.5, 0.25)
    assert back.high == pytest.approx(1 / 1.5)
    assert statistics.slower(Interval(1.2, 1.1, 1.3), 1.03)
    assert not statistics.slower(Interval(1.2, 1.0, 1.3), 1.03)
