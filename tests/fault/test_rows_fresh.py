"""Row 13: what the trainer changes on the dataset reaches persistent workers at the next ``iter()``."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset

import stoker
from tests.fault.rows import run, said

ROWS = 24


class Told(Dataset[Any]):
    """Rows that say what their worker knows."""

    def __init__(self) -> None:
        self.epoch = 0
        self.transform: Any = None
        self.words = ["a"]
        self.handle: Any = None
        self.seen = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.seen += 1
        known = self.transform(index) if self.transform is not None else index
        return {
            "epoch": self.epoch,
            "known": known,
            "words": len(self.words),
            "seen": self.seen,
            "handle": self.handle is not None,
            "pid": os.getpid(),
        }


def rows(loader: Any) -> dict[str, list[Any]]:
    """One epoch, column by column."""
    columns: dict[str, list[Any]] = {}
    for batch in loader:
        for name, values in batch.items():
            columns.setdefault(name, []).extend(values.tolist())
    return columns


def persistent(dataset: Any, **arguments: Any) -> stoker.DataLoader[Any]:
    given = {"num_workers": 1, "batch_size": 2, "multiprocessing_context": "fork", **arguments}
    return stoker.DataLoader(dataset, persistent_workers=True, **given)


@pytest.mark.parametrize("rng", ["batch", "torch"])
def test_changed_attributes_reach_workers_that_stay(rng: str) -> None:
    """Row 13: by name, in nested datasets, closures too. The workers are the same ones, and keep what they changed."""
    inner = Told()
    dataset: Any = Subset(ConcatDataset([inner]), range(ROWS))
    with persistent(dataset, rng=rng, num_workers=2) as loader:
        first = rows(loader)
        inner.set_epoch(3)
        factor = 10
        inner.transform = lambda index: factor * index
        second = rows(loader)
        inner.set_epoch(4)
        dataset.indices = range(4)
        del inner.transform
        inner.transform = None
        third = rows(loader)
    assert (set(first["epoch"]), first["known"]) == ({0}, list(range(ROWS)))
    assert (set(second["epoch"]), second["known"]) == ({3}, [10 * index for index in range(ROWS)])
    assert (third["epoch"], third["known"]) == ([4] * 4, [0, 1, 2, 3])
    assert len({*first["pid"], *second["pid"], *third["pid"]}) <= 2
    assert inner.seen == 0


def test_an_iteration_sees_the_dataset_as_it_was_when_it_began() -> None:
    """Row 13: also in a worker forked in the middle; an iterator that was dropped leaves nothing of its state behind."""
    dataset = Told()
    with persistent(dataset, batch_size=1) as loader:
        iterator = iter(loader)
        seen = [next(iterator)]
        dataset.set_epoch(9)
        dataset.transform = lambda index: -1
        (worker,) = iterator._workers
        os.kill(worker.pid, signal.SIGKILL)
        seen += iterator
        assert [batch["known"].item() for batch in seen] == list(range(ROWS))
        assert {batch["epoch"].item() for batch in seen} == {0}
        assert seen[-1]["pid"].item() != worker.pid
        iterator = iter(loader)
        assert (next(iterator)["epoch"].item(), dataset.epoch) == (9, 9)
        dataset.set_epoch(10)
        del iterator
        assert set(rows(loader)["epoch"]) == {10}


class Stream(IterableDataset[Any]):
    """What a worker knows when its stream is opened."""

    def __init__(self) -> None:
        self.epoch = 0

    def __iter__(self) -> Iterator[dict[str, int]]:
        epoch = self.epoch
        for number in range(6):
            yield {"epoch": epoch, "number": number, "pid": os.getpid()}


def test_an_iterable_dataset_opens_its_stream_with_the_new_epoch() -> None:
    """Row 13: for streams too, in every worker."""
    dataset = Stream()
    with persistent(dataset, num_workers=2) as loader:
        pids = set(rows(loader)["pid"])
        for epoch in (1, 2):
            dataset.epoch = epoch
            found = rows(loader)
            assert found["epoch"] == [epoch] * 12
            assert set(found["pid"]) == pids


class Unloadable:
    """Can be sent and not received."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_an_attribute_that_cannot_be_set_is_named_by_the_first_batch() -> None:
    """Row 13: an error in the worker says which attribute it was; the next batch follows, with what the worker had."""
    dataset = Told()
    with persistent(dataset) as loader:
        rows(loader)
        dataset.transform = Unloadable()
        dataset.epoch = 1
        iterator = iter(loader)
        with pytest.raises(ValueError, match="no number") as caught:
            next(iterator)
        assert any("dataset.epoch, dataset.transform" in note for note in caught.value.__notes__)
        assert next(iterator)["known"].tolist() == [2, 3]


@pytest.mark.parametrize("executor", ["process", "thread", "inline"])
def test_refresh(executor: str) -> None:
    """Row 13: changes inside a container are seen by new workers; an iterator in use keeps the ones it has."""
    dataset = Told()
    workers = 0 if executor == "inline" else 1
    arguments: dict[str, Any] = {
        "num_workers": workers,
        "batch_size": 2,
        "executor": executor,
        "persistent_workers": workers > 0,
    }
    with stoker.DataLoader(dataset, **arguments) as loader:
        loader.refresh()
        rows(loader)
        dataset.words.append("b")
        stale = rows(loader)["words"]
        loader.refresh()
        loader.refresh()
        iterator = iter(loader)
        assert next(iterator)["words"].tolist() == [2, 2]
        dataset.words.append("c")
        loader.refresh()
        other = rows(loader)
        rest = rows(iterator)
        again = rows(loader)
    assert set(other["words"]) == set(again["words"]) == {3}
    if executor == "process":
        assert (set(stale), set(rest["words"])) == ({1}, {2})
        assert set(other["pid"]) == set(again["pid"])
        assert set(other["pid"]).isdisjoint(rest["pid"])


def test_what_is_too_large_to_be_copied_takes_new_workers(caplog: pytest.LogCaptureFixture) -> None:
    """Row 13: 64 MiB and more are not copied into every worker: they start anew, and share."""
    caplog.set_level(logging.INFO, "stoker")
    dataset = Told()
    with persistent(dataset) as loader:
        before = rows(loader)
        dataset.handle = bytes((64 << 20) + 1)
        after = rows(loader)
        assert set(rows(loader)["pid"]) == set(after["pid"])
    assert set(after["handle"]) == {1}
    assert set(before["pid"]).isdisjoint(after["pid"])
    assert ["the workers restart" in message for message in caplog.messages] == [True]


def test_fresh_state_where_nothing_is_inherited(caplog: pytest.LogCaptureFixture) -> None:
    """Row 13: forkserver; a worker that came later, from the template, knows all that was changed before."""
    dataset = Told()
    with persistent(dataset, multiprocessing_context="forkserver", num_workers=2, rng="torch") as loader:
        half = ROWS // 2  # of the rows, for each worker
        assert max(rows(loader)["seen"]) == half
        dataset.set_epoch(1)
        dataset.transform = lambda index: index + 100
        dataset.handle = threading.Lock()
        iterator = iter(loader)
        found = rows(iterator)
        assert (set(found["epoch"]), found["known"][0], found["handle"][0]) == ({1}, 100, False)
        assert sorted(set(found["seen"])) == list(range(half + 1, ROWS + 1))  # their own count went on
        assert [message for message in caplog.messages if "dataset.handle has changed to a lock" in message]
        dataset.handle = None
        dataset.set_epoch(2)
        lost, kept = (worker.pid for worker in iterator._workers)
        os.kill(lost, signal.SIGKILL)
        found = rows(loader)
        assert (set(found["epoch"]), found["known"]) == ({2}, [index + 100 for index in range(ROWS)])
        assert len(set(found["pid"]) - {lost, kept}) == 1
        dataset.words.append("b")
        loader.refresh()
        found = rows(loader)
        assert (set(found["words"]), set(found["epoch"]), found["known"][0]) == ({2}, {2}, 100)


IN_MAIN = """
    import enum
    from stoker import DataLoader

    class Phase(enum.Enum):
        WARMUP = 1
        TRAIN = 2

    def tenfold(index):
        return 10 * index

    class Rows:
        phase, transform = Phase.WARMUP, None

        def __len__(self):
            return 2

        def __getitem__(self, index):
            return index if self.phase is Phase.WARMUP else self.transform(index)

    rows = Rows()
    loader = DataLoader(rows, num_workers=1, persistent_workers=True, multiprocessing_context="fork")
    print([batch.item() for batch in loader])
    rows.phase, rows.transform = Phase.TRAIN, lambda index: tenfold(index) + isinstance(rows, Rows)
    print([batch.item() for batch in loader])
    rows.phase = Phase.WARMUP
    print([batch.item() for batch in loader])
"""


def test_classes_of_the_script_are_the_workers_own(tmp_path: Path) -> None:
    """Row 13: a member of an Enum in ``__main__`` is that member in a forked worker, not one of a copy of the class."""
    assert said(run(IN_MAIN, folder=tmp_path)) == ["[0, 1]", "[1, 11]", "[0, 1]"]
