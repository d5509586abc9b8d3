"""Samples that raise, are None or kill their worker, and what ``on_bad_sample`` makes of them.

Batches are compared with a model of the documented rules, and bit for bit between all ways of making them: every sample draws from
random, numpy and torch.
"""

from __future__ import annotations

import copy
import json
import logging
import pickle
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, SubsetRandomSampler, get_worker_info

from stoker import DataLoader
from stoker._runtime.scheduler.row_ranges import row_ranges
from stoker.errors import NoGoodSample
from tests.fault.datasets import Marks, die
from tests.fault.rows import steps, told

SEED = 11
SPARES = 8


class Bad(Dataset[Any]):
    """Noisy rows. ``how`` says what is wrong with an index: "raise", "none", "kill" or "exit"; the last two only in a worker.

    Every death leaves a mark in ``folder``.
    """

    def __init__(self, rows: int, how: dict[int, str], folder: Path | None = None) -> None:
        self.rows = rows
        self.how = how
        self.marks = None if folder is None else Marks(folder)

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> Any:
        noise = (torch.rand(2), np.random.rand(2), random.random())
        match self.how.get(index):
            case "raise":
                raise ValueError(f"row {index} is torn")
            case "none":
                return None
            case "kill" | "exit" as end:
                assert get_worker_info() is not None
                assert self.marks is not None
                number = 0
                while not self.marks.set(f"death-{index}-{number}"):
                    number += 1
                die(None if end == "kill" else 7)
        return {"index": index, "noise": noise}

    def deaths(self, index: int | None = None) -> int:
        assert self.marks is not None
        return self.marks.count("death-" if index is None else f"death-{index}-")


class BadTogether(Bad):
    """Fetches whole batches at once."""

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [self[index] for index in indices]


def indices_of(batches: Sequence[Any]) -> list[list[int]]:
    return [batch["index"].tolist() for batch in batches]


def same(left: Any, right: Any) -> bool:
    """Whether two batches agree bit for bit."""
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, np.ndarray):
        return bool(np.array_equal(left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def epoch(dataset: Any, **arguments: Any) -> list[Any]:
    """One epoch of a fresh loader, from the same seed every time."""
    torch.manual_seed(SEED)
    with DataLoader(dataset, **arguments) as loader:
        return list(loader)


def model(batches: Sequence[Sequence[int]], bad: set[int], mode: str) -> list[list[int] | str]:
    """The indices that each batch is made of, by the documented rules; "empty" or "error" for what is no batch."""
    made: list[list[int] | str] = []
    for seq, batch in enumerate(batches):
        before = [index for earlier in batches[:seq] for index in earlier][::-1][:SPARES]
        later = [index for following in batches[seq + 1 :] for index in following]
        spares = (before + later)[:SPARES]
        rows: list[int] = []
        error = False
        for first, last in row_ranges(len(batch)):
            part = batch[first:last]
            for place, index in enumerate(part):
                others = [*part[place + 1 :], *part[:place], *spares]
                stand_in = next((other for other in others if other not in bad), None)
                if index not in bad:
                    rows.append(index)
                elif mode == "replace":
                    error |= stand_in is None
                    rows.append(-1 if stand_in is None else stand_in)
        made.append("error" if error else rows or "empty")
    return made


def in_batches(rows: int, size: int) -> list[list[int]]:
    return [list(range(rows))[first : first + size] for first in range(0, rows, size)]


INLINE_OR_THREAD: dict[str, dict[str, Any]] = {
    "inline": {},
    "thread": {"num_workers": 2, "executor": "thread"},
}


def check_against_the_model(rows: int, size: int, bad: dict[int, str], mode: Any) -> None:
    torch.manual_seed(SEED)
    loader = DataLoader(Bad(rows, bad), batch_size=size, on_bad_sample=mode)
    found = ["error" if isinstance(step, NoGoodSample) else step["index"].tolist() for step in steps(loader)]
    expected = model(in_batches(rows, size), set(bad), mode)
    assert found == [batch for batch in expected if batch != "empty"]
    assert loader.stats()["empty_batches"] == expected.count("empty")
    if mode == "skip":
        assert loader.stats()["bad_samples"]["count"] == len(bad)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[int, int, dict[int, str]]:
    rows = draw(st.integers(1, 60))
    size = draw(st.integers(1, 40))
    likely = draw(st.sampled_from((0.1, 0.5, 0.9, 1.0)))
    kinds = st.sampled_from(("raise", "none"))
    bad = {index: draw(kinds) for index in range(rows) if draw(st.floats(0, 1)) < likely}
    return rows, size, bad


@settings(max_examples=60, derandomize=True)
@given(world=worlds())
def test_skipping_does_what_the_model_says(world: tuple[int, int, dict[int, str]]) -> None:
    check_against_the_model(*world, "skip")


@settings(max_examples=60, derandomize=True)
@given(world=worlds())
def test_replacing_does_what_the_model_says(world: tuple[int, int, dict[int, str]]) -> None:
    check_against_the_model(*world, "replace")


SOFT = {0: "raise", 5: "none", 6: "raise", 17: "none", 18: "raise", 39: "raise", 40: "raise"}
"""Of 41 rows. The first and the last batch lose rows, and of the batch of one row that ends an epoch none is left."""

WAYS: dict[str, dict[str, Any]] = {
    "one worker": {"num_workers": 1},
    "two workers": {"num_workers": 2},
    "three workers, unsplit": {"num_workers": 3, "split_batches": False},
    "two workers, not in order of arrival": {"num_workers": 2, "prefetch_factor": 1},
    "forkserver": {"num_workers": 2, "multiprocessing_context": "forkserver"},
}
SHAPES: dict[str, dict[str, Any]] = {
    "batches of 4": {"batch_size": 4},
    "batches of 20, split": {"batch_size": 20},
    "one row each": {"batch_size": 1},
    "all rows": {"batch_size": 64},
    "shuffled": {"batch_size": 20, "shuffle": True},
    "by sample": {"batch_size": 20, "rng": "sample"},
    "drop_last": {"batch_size": 4, "drop_last": True},
    "samples alone": {"batch_size": None},
    "own collation": {"batch_size": 20, "collate_fn": list},
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_skipping_is_the_same_for_all_ways_of_making_batches(
    shape: dict[str, Any], way: dict[str, Any]
) -> None:
    """Row 25: whatever is bad, the batches do not depend on who makes them."""
    inline = epoch(Bad(41, SOFT), on_bad_sample="skip", **shape)
    assert same(epoch(Bad(41, SOFT), on_bad_sample="skip", **shape, **way), inline)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("together", [False, True], ids=["singly", "together"])
@pytest.mark.parametrize("rng", ["batch", "sample"])
def test_replacing_is_the_same_for_all_ways_of_making_batches(
    way: dict[str, Any], together: bool, rng: str
) -> None:
    """Row 25: every range of rows has a good sample here, so no spare is needed."""
    dataset = (BadTogether if together else Bad)(40, {index: SOFT[index] for index in SOFT if index < 40})
    inline = epoch(dataset, on_bad_sample="replace", batch_size=20, rng=rng)
    assert [len(batch) for batch in indices_of(inline)] == [20, 20]
    assert same(epoch(dataset, on_bad_sample="replace", batch_size=20, rng=rng, **way), inline)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("size", [1, 4, 20, None])
def test_workers_replace_from_spares_as_the_model_says(way: dict[str, Any], size: int | None) -> None:
    bad = {0: "raise", 1: "none", 20: "raise", 21: "raise", 22: "raise", 23: "none", 39: "raise", 40: "raise"}
    made = epoch(Bad(41, bad), on_bad_sample="replace", batch_size=size, shuffle=False, **way)
    again = epoch(Bad(41, bad), on_bad_sample="replace", batch_size=size, shuffle=False, num_workers=1)
    assert same(made, again)
    found = [[batch["index"]] for batch in made] if size is None else indices_of(made)
    assert found == model(in_batches(41, size or 1), set(bad), "replace")


@pytest.mark.parametrize("way", INLINE_OR_THREAD.values(), ids=INLINE_OR_THREAD.keys())
@pytest.mark.parametrize("size", [1, 4, None])
def test_without_processes_spares_stand_in_too(way: dict[str, Any], size: int | None) -> None:
    bad = {0: "raise", 20: "raise", 21: "raise", 22: "raise", 23: "none", 40: "raise"}
    made = epoch(Bad(41, bad), on_bad_sample="replace", batch_size=size, **way)
    found = [[batch["index"]] for batch in made] if size is None else indices_of(made)
    assert found == model(in_batches(41, size or 1), set(bad), "replace")


@pytest.mark.parametrize("mode", ["skip", "replace"])
@pytest.mark.parametrize("size", [20, 64])
def test_threads_give_the_same_rows(mode: str, size: int) -> None:
    bad = {index: SOFT[index] for index in SOFT if index < 40}
    made = epoch(Bad(40, bad), batch_size=size, on_bad_sample=mode, num_workers=2, executor="thread")
    assert indices_of(made) == model(in_batches(40, size), set(bad), mode)


def test_replacing_keeps_sizes_and_number_and_names_nothing_new() -> None:
    bad = dict.fromkeys(range(0, 60, 3), "raise")
    chosen = [index for index in range(60) if index % 2]
    for workers in (0, 2):
        torch.manual_seed(SEED)
        loader = DataLoader(
            Bad(60, bad),
            batch_size=16,
            sampler=SubsetRandomSampler(chosen),
            on_bad_sample="replace",
            num_workers=workers,
        )
        batches = indices_of(list(loader))
        assert [len(batch) for batch in batches] == [16, 14]
        assert len(batches) == len(loader)
        seen = {index for batch in batches for index in batch}
        assert seen <= set(chosen) - set(bad)


# Datasets that are bad as a whole, and errors that are not a sample's


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_always_raises_gives_nothing_and_ends(workers: int) -> None:
    with DataLoader(
        Bad(20, dict.fromkeys(range(20), "raise")), batch_size=3, num_workers=workers, on_bad_sample="skip"
    ) as loader:
        assert list(loader) == []
        stats = loader.stats()
    assert (stats["batches"], stats["empty_batches"], stats["bad_samples"]["count"]) == (0, 7, 20)


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_to_replace_with_is_an_error_that_names_the_indices(workers: int) -> None:
    dataset = Bad(6, dict.fromkeys(range(6), "raise"))
    with DataLoader(dataset, batch_size=3, num_workers=workers, on_bad_sample="replace") as loader:
        first, second = steps(loader)
    assert type(first) is type(second) is NoGoodSample
    assert "dataset index 0: ValueError: row 0 is torn" in str(first)
    assert "dataset index 3: ValueError: row 3 is torn" in str(second)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_that_breaks_is_reported_after_the_batches_before_it(workers: int) -> None:
    """The planner looks ahead for samples that could stand in; what it meets there is due later."""

    class Broken:
        def __iter__(self) -> Iterator[list[int]]:
            yield [0, 1]
            yield [2, 3]
            raise LookupError("no more shards")

    arguments: dict[str, Any] = {"batch_sampler": Broken(), "on_bad_sample": "replace"}
    with DataLoader(Bad(4, {0: "raise", 1: "none"}), num_workers=workers, **arguments) as loader:
        first, second, error = steps(loader)
    assert indices_of([first, second]) == [[2, 2], [2, 3]]
    assert isinstance(error, LookupError)


def refuse(samples: list[Any]) -> Any:
    if any(sample["index"] == 4 for sample in samples):
        raise LookupError("cannot collate 4")
    return [sample["index"] for sample in samples]


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("mode", ["skip", "replace"])
def test_errors_of_collation_are_raised_and_the_next_batch_follows(mode: str, workers: int) -> None:
    dataset = Bad(9, {0: "raise"})
    arguments: dict[str, Any] = {"batch_size": 3, "num_workers": workers, "on_bad_sample": mode}
    with DataLoader(dataset, collate_fn=refuse, **arguments) as loader:
        first, error, last = steps(loader)
    assert first == ([1, 2] if mode == "skip" else [1, 1, 2])
    assert isinstance(error, LookupError)
    assert "indices [3, 4, 5]" in told(error)
    assert last == [6, 7, 8]


class Ending(Dataset[int]):
    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 1:
            raise self.error
        return index


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("way", INLINE_OR_THREAD.values(), ids=INLINE_OR_THREAD.keys())
def test_what_ends_a_program_is_not_a_bad_sample(error: type[BaseException], way: dict[str, Any]) -> None:
    with (
        DataLoader(Ending(error), on_bad_sample="skip", **way) as loader,
        pytest.raises(error),
    ):
        list(loader)
    assert loader.stats()["bad_samples"]["count"] == 0


def test_a_worker_that_a_sample_ends_counts_as_killed() -> None:
    with DataLoader(Ending(SystemExit), on_bad_sample="skip", num_workers=1, restarts=0) as loader:
        assert [batch.item() for batch in loader] == [0, 2, 3]
        assert loader.stats()["bad_samples"]["indices"][1]["kind"] == "killed"


# Accounts


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", ["skip", "replace"])
def test_stats_and_log(mode: Any, workers: int, caplog: pytest.LogCaptureFixture) -> None:
    loader = DataLoader(
        Bad(12, {1: "raise", 7: "none"}), batch_size=4, num_workers=workers, on_bad_sample=mode, name="train"
    )
    for _ in range(3):
        list(loader)
    stats = json.loads(json.dumps(loader.stats()))
    assert set(stats.pop("memory")) >= {"budget_bytes", "arena_bytes", "workers"}
    [recorded] = stats.pop("record")["loaders"]
    assert (recorded["totals"]["bad_samples"], recorded["totals"]["batches"]) == (6, 9)
    assert [event["kind"] for event in recorded["events"]] == ["bad_sample"] * 2
    assert stats == {
        "name": "train", "batches": 9, "empty_batches": 0, "worker_deaths": 0, "stalls": 0, "tuning": None, "cache": None,
        "device": None,
        "bad_samples": {
            "count": 6,
            "indices": {
                "1": {"times": 3, "kind": "error", "reason": "ValueError: row 1 is torn"},
                "7": {"times": 3, "kind": "none", "reason": "is None"},
            },
        },
    }  # fmt: skip
    said = [record.getMessage() for record in caplog.records if record.name == "stoker"]
    done = "skipped" if mode == "skip" else "another sample takes its place"
    assert said == [
        f"train: dataset index 1 is bad (ValueError: row 1 is torn): {done}",
        f"train: dataset index 7 is bad (is None): {done}",
    ]
    assert {record.levelno for record in caplog.records if record.name == "stoker"} == {logging.WARNING}


def test_a_copy_of_a_loader_has_accounts_of_its_own() -> None:
    loader = DataLoader(Bad(4, {1: "raise"}), on_bad_sample="skip")
    list(loader)
    fresh = DataLoader(Bad(4, {1: "raise"}), on_bad_sample="skip").stats()
    fresh.pop("record")
    for other in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        stats = other.stats()
        assert stats.pop("record")["loaders"][0]["totals"]["steps"] == 0
        assert stats == fresh
        list(other)
        assert other.stats()["bad_samples"]["count"] == 1
    assert loader.stats()["bad_samples"]["count"] == 1


def test_indices_that_are_tensors_are_one_index_in_every_epoch(tmp_path: Path) -> None:
    class Tensors:
        def __iter__(self) -> Iterator[torch.Tensor]:
            return iter(torch.arange(8).split(4))

        def __len__(self) -> int:
            return 2

    class ByTensor(Bad):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(int(index))

    dataset = ByTensor(8, {1: "raise", 6: "kill"}, tmp_path)
    arguments: dict[str, Any] = {"batch_sampler": Tensors(), "num_workers": 1, "on_bad_sample": "skip"}
    with DataLoader(dataset, restarts=0, **arguments) as loader:
        for _ in range(2):
            assert indices_of(list(loader)) == [[0, 2, 3], [4, 5, 7]]
        found = json.loads(json.dumps(loader.stats()))["bad_samples"]["indices"]
    assert {index: record["times"] for index, record in found.items()} == {"1": 2, "6": 2}
    assert dataset.deaths() == 1


class Columns(Bad):
    """Makes batches of its own kind."""

    def __getitems__(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        return {"index": torch.tensor(indices)}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", ["skip", "replace"])
def test_batches_of_a_dataset_s_own_kind_are_left_alone(mode: str, workers: int) -> None:
    arguments: dict[str, Any] = {"batch_size": 2, "on_bad_sample": mode, "num_workers": workers}
    assert indices_of(epoch(Columns(4, {}), collate_fn=dict, **arguments)) == [[0, 1], [2, 3]]
