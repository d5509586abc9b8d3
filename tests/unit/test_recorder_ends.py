"""What a file says of a loader, at every moment at which the script might be killed and after all ways to be done with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset

from stoker import DataLoader
from stoker._record import journal
from stoker._record.schema import RunRecord


class Numbers(Dataset[Any]):
    def __init__(self, length: int, inner: bool = False) -> None:
        self.length = length
        self.inner = inner

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return len(list(DataLoader(Numbers(index)))) if self.inner else index


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STOKER_RECORD", str(tmp_path))
    return tmp_path


def only(folder: Path) -> RunRecord:
    (path,) = folder.glob("*.jsonl")
    return journal.read(path)


def test_a_loader_that_only_its_iterator_remembers(folder: Path) -> None:
    for _ in DataLoader(Numbers(3)):  # the loader itself is gone when the first batch comes
        assert not only(folder).run.ended
    found = only(folder)
    assert found.run.ended
    assert (found.loaders[0].totals.epochs, found.loaders[0].totals.steps) == (1, 3)
    assert len(found.loaders[0].steps["seq"]) == 3


def test_a_loop_that_is_left(folder: Path) -> None:
    iterator: Any = iter(DataLoader(Numbers(3)))
    next(iterator)
    next(iterator)
    del iterator
    assert only(folder).run.ended
    assert only(folder).loaders[0].totals.steps == 2


def test_the_first_batch_is_written_down_at_once(folder: Path) -> None:
    loader = DataLoader(Numbers(30))
    iterator = iter(loader)
    next(iterator)
    assert only(folder).loaders[0].totals.steps == 1
    assert not only(folder).run.ended
    del iterator, loader
    assert only(folder).run.ended


def test_a_loader_in_a_worker_has_no_file(folder: Path) -> None:
    assert [int(batch) for batch in DataLoader(Numbers(3, inner=True), num_workers=1)] == [0, 1, 2]
    assert only(folder).loaders[0].totals.steps == 3


def test_a_short_run_knows_what_its_workers_occupied(folder: Path) -> None:
    """They are weighed before they go, and the time that takes is the record's."""
    loader = DataLoader(Numbers(4), num_workers=1, persistent_workers=True)
    assert len(list(loader)) == 4
    loader.close()
    del loader
    (found,) = only(folder).loaders
    assert 0 in found.memory["worker"]
    assert (found.workers[0].pss_bytes or 0) > 0
    assert sum(each.ns for each in found.blame) == pytest.approx(found.totals.wait_ns, abs=10)
