"""A fixed choice of the soak's scenarios, half a minute of them. `make soak` plays others for longer."""

from __future__ import annotations

from typing import Any

import pytest

import stoker
from tests.soak.legs import LEGS, chosen
from tests.soak.soak_totals import SoakTotals
from tests.soak.supervisor import Plan, Supervisor
from tests.soak.workers.scenario import DEATHS, ENDS, FINALES, KINDS, STARTS, draw

SEEDS = [*range(100, 115), 118, 126, 36]
"""The last one is the scenario with spawned workers, which take seconds to start."""

GROUPS = [SEEDS[first::3] for first in range(3)]
LONG_S = 1000.0

QUICK = {"interrupts": 6, "forgotten": 3, "starts": 5, "samples": 1, "refusals": 1, "clocks": 1, "resumes": 1}
"""Seeds of other legs, whose scenarios take some seconds on a busy machine. What the rest does has tests of its own."""


@pytest.mark.slow
@pytest.mark.parametrize("seeds", GROUPS, ids=lambda seeds: f"from {seeds[0]}")
def test_nothing_is_lost_and_nothing_is_left(seeds: list[int]) -> None:
    played("workers", seeds)


@pytest.mark.slow
@pytest.mark.parametrize("leg", list(QUICK))
def test_every_quick_leg_ends_well(leg: str) -> None:
    played(leg, [QUICK[leg]])


def played(leg: str, seeds: list[int]) -> None:
    totals = SoakTotals(seeds[0], quiet=True)
    Supervisor(Plan([leg], seeds[0], only=(leg, seeds)), totals, 1).run(LONG_S)
    if leg in totals.left_out:
        pytest.skip(totals.left_out[leg])
    assert not totals.findings, "\n".join(
        f"--only {leg}:{seed}: {told}" for leg, seed, told in totals.findings
    )
    assert totals.scenarios == len(seeds)
    assert totals.batches > 0
    assert totals.faults.total() > 0


def test_legs_take_turns_by_their_shares() -> None:
    plan = Plan(["workers", "interrupts"], 1)
    had = dict.fromkeys(LEGS, 0.0)
    for _ in range(100):
        leg = plan.next_leg(1e6)
        assert leg is not None
        plan.begun(leg)
        plan.used(leg, 1.0)
        had[leg] += 1
    assert had["workers"] / had["interrupts"] == pytest.approx(
        LEGS["workers"].share / LEGS["interrupts"].share, rel=0.1
    )


def test_a_leg_without_the_time_for_it_is_not_begun() -> None:
    assert Plan(["workers"], 1).next_leg(LEGS["workers"].takes_s / 2) is None


def test_legs_are_chosen_by_name() -> None:
    assert chosen(None) == list(LEGS)
    assert chosen("interrupts,workers") == ["interrupts", "workers"]
    with pytest.raises(ValueError, match="no leg is called wokers: there are "):
        chosen("wokers")


def test_the_choice_has_everything() -> None:
    chosen = [draw(seed) for seed in SEEDS]
    assert {each.executor for each in chosen} == {"process", "thread", "inline"}
    processes = [each for each in chosen if each.executor == "process"]
    assert {each.start for each in processes} == set(STARTS)
    assert {each.kind for each in processes} == set(KINDS)
    assert {each.num_workers for each in processes} == {1, 2, 3, 4}
    for option in ("in_order", "persistent", "shuffle", "drop_last", "scribble"):
        assert {getattr(each, option) for each in processes} == {True, False}, option
    assert {how for each in chosen for _, how in each.deaths} == set(DEATHS)
    assert {epoch.end for each in chosen for epoch in each.epochs} == set(ENDS)
    assert {each.finale for each in chosen} == set(FINALES)
    assert any(epoch.twin for each in chosen for epoch in each.epochs)
    assert {each.on_bad_sample for each in chosen if each.raises} == {"raise", "skip", "replace"}


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "executor": "thread"}], ids=["inline", "thread"])
def test_a_replacement_does_not_depend_on_the_executor(options: dict[str, Any]) -> None:
    rows: Any = [0, 1, 2, None, 4, 5]
    loader = stoker.DataLoader(rows, batch_size=None, on_bad_sample="replace", **options)
    assert list(loader) == [0, 1, 2, 2, 4, 5]
