"""``stoker verify`` over runs that went on with another number of ranks, through the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import stoker
from stoker.cli.main import main
from tests.e2e.receipts import Numbers, run

SAMPLES = 120


class Anew(stoker.ElasticDistributedSampler):
    """Forgets where it was: it begins the epoch again after every resume."""

    def __stoker_load__(self, state: Any) -> None:
        super().__stoker_load__({**state, "consumed": 0})


def work(
    folder: Path,
    world: int,
    state: Any = None,
    leave_after: int | None = None,
    sampler: Any = stoker.ElasticDistributedSampler,
    **given: Any,
) -> Any:
    """All ranks go on from a state, which may be one of another number of ranks. Returns the state of rank 0."""
    states = []
    began = len(list(folder.iterdir())) if folder.exists() else 0
    folder.mkdir(exist_ok=True)
    for rank in range(world):
        torch.manual_seed(rank)
        mine = sampler(Numbers(SAMPLES), num_replicas=world, rank=rank, seed=3)
        loader = stoker.DataLoader(
            mine.dataset, **{"batch_size": 4, "sampler": mine, "rng": "sample"} | given
        )
        if state is not None:
            loader.load_state_dict(state)
        path = folder / f"{began:02}-{world}-{rank}.receipt"
        states.append(run(path, loader, leave_after=leave_after) or loader.state_dict())
    return states[0]


def asked(*paths: Path) -> tuple[int, str, dict[str, str]]:
    """The exit code of the command, its last line, and its answers by code."""
    given = [str(path) for path in paths]
    shown = CliRunner().invoke(main, ["verify", *given])
    told = json.loads(CliRunner().invoke(main, ["verify", "--json", *given]).output)
    return (
        shown.exit_code,
        shown.output.splitlines()[-1],
        {each["code"]: each["text"] for each in told["answers"]},
    )


@pytest.mark.parametrize(("world", "end"), [(3, 12), (1, 24)])
def test_a_run_that_goes_on_with_other_ranks_is_right(tmp_path, world, end):
    work(tmp_path, world, work(tmp_path, 2, leave_after=6))
    code, verdict, answers = asked(tmp_path)
    ranks = f"{world} rank{'s' if world > 1 else ''}"
    assert answers == {
        "complete": f"every one of the 120 samples exactly once over 2, then {ranks}",
        "adds-up": f"the legs of 2 ranks (batches 0–5), then {ranks} (batches 6–{end - 1}) add up to an epoch of {end} batches",
    }
    assert (code, verdict) == (0, f"Verdict   Nothing is wrong in {2 + world} receipts of 1 loader.")


def test_three_numbers_of_ranks_in_turn_and_a_leg_between(tmp_path):
    state = work(tmp_path, 2, leave_after=3)
    state = work(tmp_path, 2, state, leave_after=3)
    state = work(tmp_path, 3, state, leave_after=2)
    state = work(tmp_path, 3, state, leave_after=2)
    work(tmp_path, 2, state)
    code, _, answers = asked(tmp_path)
    assert code == 0
    assert set(answers) == {"complete", "adds-up"}
    assert (
        "2 ranks (batches 0–5), then 3 ranks (batches 6–9), then 2 ranks (batches 10–12)"
        in answers["adds-up"]
    )


def test_padding_of_the_rest_is_named(tmp_path):
    work(tmp_path, 3, work(tmp_path, 2, leave_after=4))  # 88 samples are left for 3 ranks
    code, _, answers = asked(tmp_path)
    assert code == 0
    assert "padding" in answers["padded"]


@pytest.mark.parametrize("world", [3, 1])
def test_an_epoch_that_is_begun_again_on_other_ranks_does_not_count_what_was_before(tmp_path, world):
    state = work(tmp_path, 2)
    work(tmp_path, 2, state, leave_after=6)
    work(tmp_path, world, state)
    code, _, answers = asked(tmp_path)
    assert code == 0
    assert "6 batches after the last saved state came again" in answers["taken-again"]
    assert "complete" in answers


def test_batches_after_the_last_state_come_again_on_other_ranks(tmp_path):
    state = work(tmp_path / "state", 2, leave_after=6)
    work(tmp_path / "run", 2, leave_after=8)
    work(tmp_path / "run", 3, state)
    code, _, answers = asked(tmp_path / "run")
    assert code == 0
    assert "2 batches after the last saved state came again" in answers["taken-again"]
    assert "legs on one number of ranks do not end where those on another begin" in answers["unknown"]


@pytest.mark.parametrize("world", [3, 1])
def test_data_that_is_repeated_on_other_ranks_is_named(tmp_path, world):
    work(tmp_path, world, work(tmp_path, 2, leave_after=6, sampler=Anew), sampler=Anew)
    code, _, answers = asked(tmp_path)
    assert code == 1
    assert "168 samples were handed over and the dataset has 120: 48 samples" in answers["wrong-samples"]
    assert "came more than once" in answers["wrong-samples"]


@pytest.mark.parametrize("world", [3, 1])
def test_a_number_of_ranks_whose_legs_are_missing_is_a_gap(tmp_path, world):
    state = work(tmp_path / "a", 2, leave_after=3)
    state = work(tmp_path / "elsewhere", 3 if world == 1 else 4, state, leave_after=2)
    work(tmp_path / "a", world, state)
    code, _, answers = asked(tmp_path / "a")
    assert code == 1
    assert answers["gap"].startswith("no leg handed over batches 3 to 4: ")
    assert answers["gap"].endswith("began at batch 5")
    assert "complete" not in answers


@pytest.mark.parametrize("world", [3, 1])
def test_the_beginning_is_missing(tmp_path, world):
    work(tmp_path / "b", world, work(tmp_path / "a", 2, leave_after=6))
    code, _, answers = asked(tmp_path / "b")
    assert code == 1
    assert "no leg handed over batches 0 to 5" in answers["gap"]


@pytest.mark.parametrize("world", [3, 1])
def test_one_rank_whose_leg_is_missing_is_named(tmp_path, world):
    state = work(tmp_path, 2, leave_after=6)
    (tmp_path / "00-2-1.receipt").unlink()
    work(tmp_path, world, state)
    _, _, answers = asked(tmp_path)
    assert answers["ranks-missing"] == "the receipts of rank 1 of 2 are not here: not all samples are"
    assert "complete" not in answers


def test_one_rank_whose_leg_ends_early_is_named(tmp_path):
    state = work(tmp_path, 2, leave_after=6)
    (tmp_path / "00-2-1.receipt").unlink()
    early = tmp_path / "early"
    work(early, 2, leave_after=4)
    (early / "00-2-1.receipt").rename(tmp_path / "00-2-1.receipt")
    (early / "00-2-0.receipt").unlink()
    work(tmp_path, 3, state)
    code, _, answers = asked(tmp_path)
    assert "rank 1 of 2: the receipts of batches 4 to 5 are not here" in answers["leg-missing"]
    assert "complete" not in answers
    assert code == 0


def test_an_old_state_that_is_loaded_on_other_ranks_again_is_named(tmp_path):
    state = work(tmp_path, 2, leave_after=6)
    work(tmp_path, 3, state, leave_after=2)
    work(tmp_path, 1, state)
    code, _, answers = asked(tmp_path)
    assert code == 1
    assert answers["repeated"].startswith("repeated data: batches 6 to 7 came on 3 ranks and again on 1")


def test_two_elastic_runs_are_compared(tmp_path):
    for name in ("a", "b"):
        work(tmp_path / name, 3, work(tmp_path / name, 2, leave_after=6))
    work(tmp_path / "plain", 3)
    code, _, answers = asked(tmp_path / "a", tmp_path / "b")
    assert code == 0
    assert "the two runs are the same: 6 batches on each rank" in answers["same"]
    code, _, answers = asked(tmp_path / "a", tmp_path / "plain")
    assert code == 0
    assert answers["same-samples"].startswith("the two runs are of 2, then 3 and 3 ranks: the same samples")
