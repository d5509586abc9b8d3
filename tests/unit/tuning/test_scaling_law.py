"""The scaling curve: laws that made the points are found again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker._runtime.simulation.scaling_law import ScalingLaw, curve, fit

MS = 1_000_000


def points(law: ScalingLaw, *workers: int) -> list[tuple[int, float]]:
    return [(count, law.interval_ns(count)) for count in workers]


def fitted(pairs: list[tuple[int, float]]) -> ScalingLaw:
    law = fit(pairs)
    assert isinstance(law, ScalingLaw), law
    return law


def test_contention_and_coherence_are_found() -> None:
    made = ScalingLaw("usl", 10 * MS, sigma=0.05, kappa=0.01)
    found = fitted(points(made, 1, 2, 4, 8, 16))
    assert found.name == "usl"
    assert found.sigma == pytest.approx(0.05)
    assert found.kappa == pytest.approx(0.01)
    assert found.batch_ns == pytest.approx(10 * MS)
    assert found.peak == pytest.approx((0.95 / 0.01) ** 0.5)


def test_two_points_tell_contention_alone() -> None:
    found = fitted(points(ScalingLaw("usl", 10 * MS, sigma=0.2), 1, 4))
    assert found.sigma == pytest.approx(0.2)
    assert found.kappa == 0.0
    assert found.peak is None


def test_cpus_that_are_full_are_a_roof() -> None:
    found = fitted(points(ScalingLaw("roof", 10 * MS, roof_ns=5 * MS), 1, 2, 4, 8))
    assert found.name == "roof"
    assert found.roof_ns == pytest.approx(5 * MS)
    assert found.knee(8) == 2


def test_workers_that_do_not_get_in_each_others_way() -> None:
    found = fitted(points(ScalingLaw("usl", 10 * MS), 1, 2, 4, 8))
    assert found.sigma == pytest.approx(0.0, abs=1e-9)
    assert found.knee(8) == 8


@pytest.mark.parametrize("pairs", [[], [(4, 5.0 * MS)], [(0, 9.0 * MS), (2, 5.0 * MS)]])
def test_too_few_points_are_no_law(pairs: list[tuple[int, float]]) -> None:
    assert "too few" in str(fit(pairs))


def test_times_that_do_not_change_are_no_law() -> None:
    assert "something else" in str(fit([(1, 10.0 * MS), (2, 10.1 * MS), (8, 10.05 * MS)]))


def test_the_step_is_a_roof_and_no_contention() -> None:
    law = fit([(2, 9.1 * MS), (3, 8.3 * MS)], floor_ns=8.2 * MS)
    assert isinstance(law, ScalingLaw)
    assert (law.name, law.peak) == ("roof", None)
    assert law.interval_ns(1) == pytest.approx(18.2 * MS)
    assert law.knee(8) == 3
    assert curve([(1, 20.0 * MS), (4, 8.3 * MS)], floor_ns=8.2 * MS)["law"]["roof_ns"] == 8.3 * MS


def test_faster_than_linear_still_gives_a_law() -> None:
    assert fitted([(1, 10.0 * MS), (2, 4.0 * MS), (4, 1.5 * MS)]).batch_ns > 0


def test_the_curve_is_plain_and_tells_the_loss() -> None:
    told = curve(
        [(0, 12.0 * MS), (1, 10.0 * MS), (2, 5.0 * MS), (2, 5.5 * MS), (4, 5.2 * MS), (8, 6.25 * MS)]
    )
    assert json.loads(json.dumps(told)) == told
    assert len(told["points"]) == 6
    assert told["best"] == 2
    assert told["loss"] == pytest.approx(0.2)
    assert told["loss_at"] == 8
    assert told["knee"] in (2, 3)
    assert told["law"]["error"] < 0.15


def test_a_curve_without_law_says_why() -> None:
    told = curve([(2, 5.0 * MS)])
    assert told["law"] is None
    assert told["why_not"]
    assert curve([])["points"] == []


@settings(max_examples=40, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 64), st.floats(1e3, 1e10)), max_size=6),
)
def test_any_points_give_a_law_or_a_reason(pairs: list[tuple[int, float]]) -> None:
    told = curve(pairs)
    assert (told["law"] is None) == bool(told["why_not"])
    if told["law"]:
        assert 1 <= told["knee"] <= max(count for count, _ in pairs)
        assert told["law"]["error"] >= 0
    assert told["loss"] is None or 0.0 <= told["loss"] < 1.0
