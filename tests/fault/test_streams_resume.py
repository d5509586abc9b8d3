"""Workers of iterable datasets are killed: every sample arrives once and in order, and a stateful dataset is not read again."""

from __future__ import annotations

import itertools
import logging
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

import stoker
from tests.compat.compare import assert_same, seed_everything

COUNT = 120


class Readings:
    """Every reading of a value, in a file, whatever becomes of the process that read it."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "readings")

    def note(self, value: int) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(fd, f"{value}\n".encode())
        os.close(fd)

    def counted(self) -> Counter[int]:
        with open(self._path) as file:
            return Counter(int(line) for line in file)


def share() -> tuple[int, int]:
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


class Plain(IterableDataset[Any]):
    """Each worker's share of a range, with noise. It cannot say where it stands."""

    def __init__(self, readings: Readings) -> None:
        self.readings = readings

    def __iter__(self) -> Iterator[Any]:
        first, step = share()
        for value in range(first, COUNT, step):
            self.readings.note(value)
            yield value, torch.rand(1), random.random()


class Stateful(Plain):
    """The dataset says where it stands."""

    def __init__(self, readings: Readings) -> None:
        super().__init__(readings)
        self.done = 0

    def __iter__(self) -> Iterator[Any]:
        first, step = share()
        for value in range(first + self.done * step, COUNT, step):
            self.readings.note(value)
            self.done += 1
            yield value, torch.rand(1), random.random()
        self.done = 0

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done = state["done"]


class Position:
    """An iterator that says where it stands, as torchdata's do."""

    def __init__(self, readings: Readings) -> None:
        self.readings = readings
        self.value, self.step = share()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.value >= COUNT:
            raise StopIteration
        value, self.value = self.value, self.value + self.step
        self.readings.note(value)
        return value, torch.rand(1), random.random()

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]


class StatefulIterator(Plain):
    """Its iterator says where it stands."""

    def __iter__(self) -> Iterator[Any]:
        return Position(self.readings)


class OwnIterator(Plain):
    """A dataset that is its own iterator, and begins anew with every ``iter()``."""

    def __init__(self, readings: Readings) -> None:
        super().__init__(readings)
        self.position: Position | None = None

    def __iter__(self) -> Iterator[Any]:
        self.position = Position(self.readings)
        return self

    def __next__(self) -> Any:
        assert self.position is not None
        return next(self.position)

    def state_dict(self) -> dict[str, int]:
        assert self.position is not None
        return self.position.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = Position(self.readings)
        self.position.load_state_dict(state)


class Mute(Stateful):
    """Its state cannot be told."""

    def state_dict(self) -> dict[str, int]:
        raise NotImplementedError("not while streaming")


class Unsendable(Stateful):
    """Its state cannot travel."""

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "file": open(os.devnull)}


def loader_of(dataset: Any, **options: Any) -> Any:
    seed_everything(5)
    return stoker.DataLoader(
        dataset, **{"batch_size": 5, "num_workers": 2, "multiprocessing_context": "fork", **options}
    )


def kill(iterator: Any, worker: int) -> None:
    """Kill a worker and see it dead."""
    process = iterator._workers[worker]
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
        process.join()


def values(batches: list[Any]) -> list[int]:
    return [value for batch in batches for value in batch[0].tolist()]


@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 3}, {"drop_last": True, "batch_size": 7}, {"prefetch_factor": 5}, {"rng": "torch"}],
    ids=["plain", "three workers", "drop_last", "deep", "torch's rng"],
)
@pytest.mark.parametrize("kind", [Plain, Stateful, StatefulIterator], ids=lambda kind: kind.__name__)
def test_killed_at_random_everything_arrives_once_and_in_order(
    kind: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    expected = list(loader_of(kind(Readings(tmp_path)), **options))
    draw = random.Random(f"{kind.__name__} {options}")
    iterator = iter(loader_of(kind(Readings(tmp_path)), **options))
    found: list[Any] = []
    while True:
        if draw.random() < 0.3:
            kill(iterator, draw.randrange(len(iterator._workers)))
        try:
            found.append(next(iterator))
        except StopIteration:
            break
    if options.get("rng") == "torch":  # a worker's streams of numbers begin again with it
        assert values(found) == values(expected)
    else:
        assert_same(expected, found)


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_under_other_start_methods(method: str, tmp_path: Path) -> None:
    iterator = iter(loader_of(Stateful(Readings(tmp_path)), multiprocessing_context=method))
    found = [next(iterator)]
    kill(iterator, 1)
    found += list(iterator)
    assert sorted(values(found)) == list(range(COUNT))


@pytest.mark.parametrize("kind", [Stateful, StatefulIterator], ids=lambda kind: kind.__name__)
def test_what_was_delivered_is_not_read_again(kind: Any, tmp_path: Path) -> None:
    readings = Readings(tmp_path)
    iterator = iter(loader_of(kind(readings)))
    found: list[Any] = []
    delivered: list[set[int]] = []
    for deaths in range(1, 4):
        found += [next(iterator) for _ in range(6)]
        delivered.append(set(values(found)))
        kill(iterator, deaths % 2)
    found += list(iterator)
    assert sorted(values(found)) == list(range(COUNT))
    counted = readings.counted()
    assert set(counted) == set(range(COUNT))
    # A worker's share that was delivered before its first death has been read once; before its second at most twice.
    for deaths, until in enumerate(delivered):
        assert all(counted[value] <= 1 + deaths for value in until)
    assert all(counted[value] == 1 for value in delivered[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_is_its_own_iterator_is_read_once(workers: int, tmp_path: Path) -> None:
    """``def __iter__(self): self.position = 0; return self`` is what many people write."""
    options: dict[str, Any] = {} if workers else {"multiprocessing_context": None}
    loader = loader_of(OwnIterator(Readings(tmp_path)), num_workers=workers, **options)
    found = list(itertools.islice(loader, 2 * COUNT // 5))
    assert sorted(values(found)) == list(range(COUNT))


def test_a_dataset_that_is_its_own_iterator_goes_on_where_it_stood(tmp_path: Path) -> None:
    readings = Readings(tmp_path)
    iterator = iter(loader_of(OwnIterator(readings)))
    found = [next(iterator) for _ in range(6)]
    delivered = values(found)
    kill(iterator, 0)
    found += list(itertools.islice(iterator, 2 * COUNT // 5))
    iterator._shutdown_workers()
    assert sorted(values(found)) == list(range(COUNT))
    counted = readings.counted()
    assert all(counted[value] == 1 for value in delivered)


def test_without_a_state_the_stream_is_read_again(tmp_path: Path) -> None:
    """The other side of the guarantee, and proof that the readings count."""
    readings = Readings(tmp_path)
    iterator = iter(loader_of(Plain(readings)))
    found = [next(iterator) for _ in range(6)]
    kill(iterator, 0)
    found += list(iterator)
    assert sorted(values(found)) == list(range(COUNT))
    assert readings.counted()[0] == 2
    assert readings.counted()[1] == 1


@pytest.mark.parametrize("kind", [Mute, Unsendable], ids=lambda kind: kind.__name__)
def test_a_state_that_cannot_be_had_is_said_once_and_the_stream_read_again(
    kind: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="stoker")
    iterator = iter(loader_of(kind(Readings(tmp_path)), num_workers=1))
    found = [next(iterator) for _ in range(4)]
    said = [record.getMessage() for record in caplog.records if "state_dict()" in record.getMessage()]
    assert len(said) == 1
    assert "its stream is read again from its beginning" in said[0]
    kill(iterator, 0)
    found += list(iterator)
    assert values(found) == list(range(COUNT))


def test_the_next_epoch_begins_at_the_beginning(tmp_path: Path) -> None:
    """A state of one epoch is not taken for one of the next, also when the worker dies between them."""
    with loader_of(StatefulIterator(Readings(tmp_path)), persistent_workers=True) as loader:
        first = list(loader)
        kill(loader._iterator, 0)
        iterator = iter(loader)
        found = [next(iterator)]
        kill(loader._iterator, 1)
        found += list(iterator)
    assert values(found) == values(first)


class Faulty(StatefulIterator):
    """Every tenth value is an error of its own."""

    def __iter__(self) -> Iterator[Any]:
        return FaultyPosition(self.readings)


class FaultyPosition(Position):
    def __next__(self) -> Any:
        sample = super().__next__()
        if sample[0] % 10 == 9:
            raise ValueError(f"value {sample[0]}")
        return sample


def told(iterator: Any, kills: set[int]) -> list[Any]:
    """Values of batches and texts of errors, with worker 0 killed before these steps."""
    steps: list[Any] = []
    while True:
        if len(steps) in kills:
            kill(iterator, 0)
        try:
            steps.append(next(iterator)[0].tolist())
        except ValueError as error:
            steps.append(str(error))
        except StopIteration:
            return steps


def test_errors_of_the_stream_are_passed_over_too(tmp_path: Path) -> None:
    expected = told(iter(loader_of(Faulty(Readings(tmp_path)), num_workers=1)), set())
    found = told(iter(loader_of(Faulty(Readings(tmp_path)), num_workers=1)), {2, 5, 9})
    assert found == expected
    assert any(isinstance(step, str) for step in expected)
