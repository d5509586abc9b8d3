"""Threads and a ``__getitem__`` that fills one memory again and again: batches are those of a loader without workers."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

import stoker
from stoker._runtime.executors import kept_samples
from stoker._runtime.executors.kept_samples import KeptSamples, WatchedFetcher
from stoker._runtime.executors.turn import Turn

ROWS = 48
SAID = "fills again for a later sample"


class Buffers(Dataset[Any]):
    """Returns memory that it keeps, in one of several ways."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.tensor = torch.zeros(4)
        self.array = np.zeros(4, np.float32)
        self.ring = [torch.zeros(4) for _ in range(3)]
        self.calls = 0

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        return getattr(self, self.way)(index)

    def whole(self, index: int) -> torch.Tensor:
        return self.tensor.fill_(index)

    def view(self, index: int) -> dict[str, Any]:
        return {"x": [self.tensor.fill_(index).view(2, 2)]}

    def detached(self, index: int) -> torch.Tensor:
        return self.tensor.fill_(index).detach()

    def numpy(self, index: int) -> Any:
        self.array[:] = index
        return self.array

    def from_numpy(self, index: int) -> torch.Tensor:
        self.array[:] = index
        return torch.from_numpy(self.array)

    def in_turn(self, index: int) -> torch.Tensor:
        self.calls += 1
        return self.ring[self.calls % 3].fill_(index)


class Batched(Buffers):
    """Fetches the rows of a batch itself, into one memory."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [self.tensor.fill_(indices[0])]


def first_sample(samples: list[Any]) -> Any:
    return samples[0]


def number(batch: Any) -> int:
    while not isinstance(batch, torch.Tensor | np.ndarray):
        batch = batch["x"] if isinstance(batch, dict) else batch[0]
    return int(batch.reshape(-1)[0])


def loaded(dataset: Any, **options: Any) -> tuple[list[int], list[str]]:
    """What all batches of an epoch hold, read after it, and what was warned of memory that is filled again."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with stoker.DataLoader(dataset, executor="thread", **options) as loader:
            batches = list(loader)
    return [number(each) for each in batches], [
        text for each in told if "fills again" in (text := str(each.message))
    ]


WAYS = [name for name in vars(Buffers) if not name.startswith("_")]
MODES = [
    {"batch_size": None},
    {"batch_size": 1},
    {"batch_size": 1, "collate_fn": first_sample},
]


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("options", MODES, ids=["unbatched", "single", "own-collation"])
@pytest.mark.parametrize("way", WAYS)
def test_batches_stay_as_they_were_made(way: str, options: dict[str, Any], workers: int) -> None:
    found, said = loaded(Buffers(way), num_workers=workers, **options)
    assert found == list(range(ROWS))
    assert len(said) == 1
    assert SAID in said[0]
    assert "threading.local" in said[0]


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("way", ["whole", "from_numpy"])
def test_a_batch_that_is_one_of_its_samples_is_the_one_of_a_loader_without_workers(
    way: str, workers: int
) -> None:
    """The memory of a sample holds the last row of the batch, whoever makes it."""
    options = {"batch_size": 4, "collate_fn": first_sample}
    found, _ = loaded(Buffers(way), num_workers=workers, **options)
    assert found == list(range(3, ROWS, 4))


def test_rows_that_are_fetched_together() -> None:
    found, said = loaded(Batched("whole"), num_workers=4, batch_size=4)
    assert found == list(range(0, ROWS, 4))
    assert len(said) == 1


def test_memory_of_each_thread_that_comes_back_is_copied() -> None:
    class OnePerThread(Buffers):
        here = threading.local()

        def whole(self, index: int) -> torch.Tensor:
            if not hasattr(self.here, "tensor"):
                self.here.tensor = torch.zeros(4)
            found: torch.Tensor = self.here.tensor.fill_(index)
            return found

    found, _ = loaded(OnePerThread("whole"), num_workers=4, batch_size=None)
    assert found == list(range(ROWS))


class Meeting(Dataset[int]):
    """Its first two samples wait for each other."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index < 2:
            self.barrier.wait(60)
        return index


def test_a_sample_that_waits_for_another_thread_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_samples, "_PATIENCE_S", 0.05)
    with stoker.DataLoader(Meeting(), 1, num_workers=2, executor="thread") as loader:
        assert [int(batch) for batch in loader] == list(range(8))


CONSTANT = torch.ones(3)
TABLE = torch.arange(30.0).reshape(10, 3)
HARMLESS: dict[str, Callable[[int], Any]] = {
    "new": lambda index: torch.full((3,), float(index)),
    "one for all": lambda index: CONSTANT,
    "parts of a table": lambda index: TABLE[index],
    "windows": lambda index: {"x": TABLE[index : index + 5], "label": index},
    "arrays": lambda index: np.full(3, index),
    "no arrays": lambda index: (index, str(index)),
    "quantised": lambda index: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
}


@pytest.mark.parametrize("way", list(HARMLESS))
def test_other_memory_is_watched_for_a_few_samples_only(way: str, recwarn: Any) -> None:
    turn = Turn()
    samples = KeptSamples(turn)
    for index in range(4):
        assert samples.watches
        samples.fetch(HARMLESS[way], index)
    assert not samples.watches
    assert not samples.found
    assert not samples._held
    assert [each for each in recwarn if SAID in str(each.message)] == []
    threads: list[bool] = []
    other = threading.Thread(target=lambda: threads.append(turn.take(0)))
    other.start()
    other.join()
    assert threads == [True]


def test_nothing_is_in_the_way_of_a_sample_after_that() -> None:
    dataset = TensorDataset(TABLE)
    samples = KeptSamples(Turn())
    fetcher = WatchedFetcher(dataset, samples)
    fetch = fetcher.bind()
    for index in range(4):
        assert torch.equal(fetch(index)[0], TABLE[index])
    assert fetcher.bind() == dataset.__getitem__


def test_a_batch_that_began_before_something_was_found_takes_its_turn_all_the_same() -> None:
    turn = Turn()
    samples = KeptSamples(turn)
    fetcher = WatchedFetcher(Buffers("whole"), samples)
    fetcher.bind()(0)
    with pytest.warns(UserWarning, match=SAID):
        fetcher.bind()(1)
    turn.leave()
    waited: list[bool] = []

    def other() -> None:
        fetcher.bind()(2)
        waited.append(True)

    turn.take()
    thread = threading.Thread(target=other)
    thread.start()
    assert waited == []
    turn.leave()
    thread.join()
    assert waited == [True]


def test_of_large_samples_only_the_first_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_samples, "_MOST_HELD_BYTES", 20)
    samples = KeptSamples(Turn())
    for index in range(3):
        samples.fetch(HARMLESS["new"], index)
        assert len(samples._held) == 1
    found, said = loaded(Buffers("whole"), num_workers=2, batch_size=None)
    assert found == list(range(ROWS))
    assert len(said) == 1


def test_a_table_is_not_taken_for_memory_that_is_filled_again() -> None:
    found, said = loaded(TensorDataset(TABLE), num_workers=2, batch_size=1, collate_fn=first_sample)
    assert found == [int(row[0]) for row in TABLE]
    assert said == []
