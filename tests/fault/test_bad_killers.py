"""Samples that kill their worker: found by the deaths they cost, left out or replaced, remembered.

Every death leaves a mark on disk, so that they can be counted after the fact.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from stoker import DataLoader
from stoker._runtime.scheduler import policy
from stoker.errors import WorkerDied
from tests.fault.datasets import Deadly
from tests.fault.rows import steps
from tests.fault.test_bad_samples import (
    SEED,
    SHAPES,
    WAYS,
    Bad,
    BadTogether,
    epoch,
    in_batches,
    indices_of,
    model,
    refuse,
    same,
)  # fmt: skip

DEADLY = {3: "kill", 9: "exit", 10: "raise", 30: "kill", 31: "none"}


@pytest.mark.parametrize("mode", ["skip", "replace"])
@pytest.mark.parametrize("restarts", [0, 1, 2])
@pytest.mark.parametrize("workers", [1, 2])
def test_samples_that_kill_are_left_out_after_so_many_deaths(
    mode: str, restarts: int, workers: int, tmp_path: Path
) -> None:
    """Row 25, and samples that crash: each costs ``restarts`` + 1 workers and nothing else changes."""
    dataset = Bad(40, DEADLY, tmp_path)
    torch.manual_seed(SEED)
    arguments: dict[str, Any] = {
        "batch_size": 20, "num_workers": workers, "on_bad_sample": mode, "restarts": restarts,
    }  # fmt: skip
    with DataLoader(dataset, **arguments) as loader:
        made = list(loader)
        stats = loader.stats()
    assert indices_of(made) == model(in_batches(40, 20), set(DEADLY), mode)
    deaths = {index: dataset.deaths(index) for index in (3, 9, 30)}
    if workers == 1:
        assert deaths == dict.fromkeys(deaths, restarts + 1)
        assert stats["worker_deaths"] == 3 * (restarts + 1)
    else:  # a task that was issued again while a living worker held it may cost one more
        assert all(restarts < count for count in deaths.values())
    kinds = {index: record["kind"] for index, record in stats["bad_samples"]["indices"].items()}
    assert kinds == {3: "killed", 9: "killed", 10: "error", 30: "killed", 31: "none"}


@pytest.mark.parametrize(
    "way", [WAYS[name] for name in ("two workers", "three workers, unsplit", "forkserver")]
)
@pytest.mark.parametrize(
    "shape", ["batches of 4", "batches of 20, split", "shuffled", "by sample", "samples alone"]
)
def test_what_killers_leave_is_the_same_for_all_workers(
    way: dict[str, Any], shape: str, tmp_path: Path
) -> None:
    made = []
    for number, arguments in enumerate(({"num_workers": 1}, way)):
        folder = tmp_path / str(number)
        folder.mkdir()
        made.append(
            epoch(Bad(40, DEADLY, folder), on_bad_sample="replace", restarts=0, **SHAPES[shape], **arguments)
        )
    assert same(*made)


@pytest.mark.parametrize("mode", ["skip", "replace"])
def test_one_killer_in_a_batch_that_is_fetched_at_once(mode: str, tmp_path: Path) -> None:
    """``__getitems__`` does not say who it was: the batch is fetched one by one then."""
    dataset = BadTogether(12, {5: "kill"}, tmp_path)
    made = epoch(dataset, batch_size=4, num_workers=1, on_bad_sample=mode, restarts=1)
    assert indices_of(made) == model(in_batches(12, 4), {5}, mode)
    assert dataset.deaths() == 4, "two for the batch, two for the row"


@pytest.mark.parametrize("workers", [1, 2])
def test_spares_that_kill_do_not_stand_in(workers: int, tmp_path: Path) -> None:
    dataset = Bad(6, {0: "kill", 1: "kill", 2: "exit"}, tmp_path)
    made = epoch(dataset, batch_size=1, num_workers=workers, on_bad_sample="replace", restarts=0)
    assert indices_of(made) == [[3], [3], [3], [3], [4], [5]]


def test_a_batch_of_killers_only_is_no_batch(tmp_path: Path) -> None:
    dataset = Bad(6, {2: "kill", 3: "exit"}, tmp_path)
    with DataLoader(dataset, batch_size=2, num_workers=2, on_bad_sample="skip", restarts=0) as loader:
        assert indices_of(list(loader)) == [[0, 1], [4, 5]]
        assert loader.stats()["empty_batches"] == 1


@pytest.mark.parametrize("persistent", [False, True], ids=["new workers", "persistent"])
@pytest.mark.parametrize("mode", ["skip", "replace"])
def test_a_killer_is_remembered(mode: Any, persistent: bool, tmp_path: Path) -> None:
    dataset = Bad(40, DEADLY, tmp_path)
    with DataLoader(
        dataset, batch_size=10, num_workers=2, on_bad_sample=mode, restarts=1, persistent_workers=persistent
    ) as loader:
        first = indices_of(list(loader))
        deaths = dataset.deaths()
        assert indices_of(list(loader)) == first
        assert dataset.deaths() == deaths
        assert loader.stats()["bad_samples"]["indices"][3]["times"] == 2


@pytest.mark.parametrize("size", [1, 40])
def test_a_dataset_that_always_crashes_ends_in_one_error(size: int, tmp_path: Path) -> None:
    dataset = Bad(200, dict.fromkeys(range(200), "exit"), tmp_path)
    with DataLoader(dataset, batch_size=size, num_workers=1, on_bad_sample="skip", restarts=0) as loader:
        iterator = iter(loader)
        with pytest.raises(WorkerDied, match="30 workers died without one batch delivered between them"):
            next(iterator)
        with pytest.raises(StopIteration):
            next(iterator)
        assert loader.stats()["worker_deaths"] == 30
    assert dataset.deaths() == 30


def test_rows_that_killed_once_each_are_not_bad(tmp_path: Path) -> None:
    """Workers that die for another reason, on other rows of one batch, cost nothing but time."""
    inline = epoch(Deadly(tmp_path, set(), rows=30), batch_size=10)
    dataset = Deadly(tmp_path, {1, 4, 7, 9}, rows=30)
    torch.manual_seed(SEED)
    with DataLoader(dataset, batch_size=10, num_workers=2, on_bad_sample="skip", restarts=1) as loader:
        assert same(list(loader), inline)
        stats = loader.stats()
    assert (stats["worker_deaths"], stats["bad_samples"]["count"]) == (4, 0)


@pytest.mark.parametrize("mode", ["skip", "replace"])
@pytest.mark.parametrize("deadly", [{}, {33: "kill", 60: "exit", 250: "kill"}], ids=["alive", "deadly"])
def test_batches_split_at_every_chance_are_the_same(
    mode: str, deadly: dict[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are missing, parts that are empty, and parts that lie in their places all go together."""
    monkeypatch.setattr(policy, "SPLIT_PAYS_NS", -1)
    bad = dict.fromkeys((40, 100, 101, 130, *range(160, 192), *range(200, 220), 319), "raise") | deadly
    made = []
    for number, way in enumerate(({"split_batches": False, "num_workers": 1}, {"num_workers": 2})):
        folder = tmp_path / str(number)
        folder.mkdir()
        made.append(
            epoch(
                Bad(320, bad, folder),
                batch_size=32,
                on_bad_sample=mode,
                restarts=0,
                prefetch_factor=1,
                **way,
            )
        )
    assert indices_of(made[1]) == [
        rows for rows in model(in_batches(320, 32), set(bad), mode) if rows != "empty"
    ]
    assert same(*made)


def test_a_killer_in_a_batch_that_fails_is_remembered_too(tmp_path: Path) -> None:
    dataset = Bad(6, {3: "kill"}, tmp_path)
    with DataLoader(
        dataset, batch_size=3, num_workers=1, on_bad_sample="skip", restarts=0, collate_fn=refuse
    ) as loader:
        for _ in range(2):
            first, error = steps(loader)
            assert first == [0, 1, 2]
            assert isinstance(error, LookupError)
        assert loader.stats()["bad_samples"]["indices"][3]["kind"] == "killed"
    assert dataset.deaths() == 1


def test_a_loader_that_learned_of_killers_may_be_told_to_raise_again(tmp_path: Path) -> None:
    dataset = Bad(6, {3: "kill"}, tmp_path)
    with DataLoader(dataset, batch_size=3, num_workers=1, on_bad_sample="skip", restarts=0) as loader:
        assert indices_of(list(loader)) == [[0, 1, 2], [4, 5]]
        loader.on_bad_sample = "raise"
        error = steps(loader)[1]
    assert isinstance(error, WorkerDied)
    assert "dataset index 3 (row 0 of batch 1)" in str(error)


@pytest.mark.parametrize("mode", ["skip", "replace"])
def test_killers_among_batches_that_are_bound_to_workers(mode: str, tmp_path: Path) -> None:
    dataset = Bad(40, DEADLY, tmp_path)
    made = epoch(dataset, batch_size=10, num_workers=2, rng="torch", on_bad_sample=mode, restarts=1)
    assert indices_of(made) == model(in_batches(40, 10), set(DEADLY), mode)
