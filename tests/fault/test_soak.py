"""A fixed choice of the soak's scenarios, half a minute of them. `make soak` plays others for longer."""

from __future__ import annotations

from typing import Any

import pytest

import stoker
from tests.soak.ledger import Ledger
from tests.soak.scenario import DEATHS, ENDS, FINALES, KINDS, STARTS, draw
from tests.soak.supervisor import Supervisor

SEEDS = [*range(100, 115), 118, 126, 36]
"""The last one is the scenario with spawned workers, which take seconds to start."""

GROUPS = [SEEDS[first::3] for first in range(3)]
LONG_S = 1000.0


@pytest.mark.slow
@pytest.mark.parametrize("seeds", GROUPS, ids=lambda seeds: f"from {seeds[0]}")
def test_nothing_is_lost_and_nothing_is_left(seeds: list[int]) -> None:
    ledger = Ledger(seeds[0], quiet=True)
    Supervisor(iter(seeds), ledger, 1).run(LONG_S)
    assert not ledger.findings, "\n".join(f"--only {seed}: {finding}" for seed, finding in ledger.findings)
    assert ledger.scenarios == len(seeds)
    assert ledger.batches > 0
    assert ledger.faults.total() > 0


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
