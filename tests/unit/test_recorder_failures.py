"""An instrument that fails costs its part of the record and nothing else, and the record says so."""

from __future__ import annotations

import errno
import gc
import os
import weakref
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from torch.utils.data import Dataset

from stoker import DataLoader
from stoker._record import attribution, journal, recorder, step_buffer, totals
from stoker._record.readings import machine
from stoker._record.run_page import page
from stoker._record.schema import RunRecord


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (attribution.Attribution, "fold"),
        (page.RunPage, "create"),
        (page.RunPage, "write"),
        (journal.Journal, "__init__"),
        (journal.Journal, "append"),
        (totals.RunningTotals, "add"),
        (totals.RunningTotals, "copy"),
        (totals.RunningTotals, "opened"),
        (totals.RunningTotals, "stopped"),
        (machine.CounterReader, "read"),
        (recorder.Recorder, "_tally"),
        (recorder.Recorder, "_loader"),
        (step_buffer.StepBuffer, "take"),
        (step_buffer.StepBuffer, "pending"),
    ],
)
def test_every_batch_comes_and_the_record_tells(
    owner: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "PERIOD_NS", 0)
    loader = DataLoader(Numbers(), batch_size=2, record=tmp_path / "record.jsonl")
    with mock.patch.object(owner, name, side_effect=full()):
        assert [len(list(loader)) for _ in range(2)] == [3, 3]
        found = loader.stats()["record"]["loaders"][0]
    assert [event["kind"] for event in found["events"]] == ["unplugged"]
    assert "No space left" in found["events"][0]["reason"]


def test_a_full_disk_costs_one_line_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(Numbers(), batch_size=2)
    list(loader)
    record = RunRecord.from_dict(loader.stats()["record"])
    book = journal.Journal(tmp_path / "record.jsonl")
    book.append(record)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", WriteSome(os.write))
        with pytest.raises(OSError, match="No space left"):
            book.append(record)
    for steps in (4, 5):
        record.loaders[0].totals.steps = steps
        book.append(record)
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "cut.jsonl").write_text("{")
    found = journal.read(tmp_path).loaders[0]
    assert (found.totals.steps, len(found.steps["seq"])) == (5, 9)


class WriteSome:
    """``os.write`` on a disk with room for a hundred bytes."""

    def __init__(self, write: Any) -> None:
        self.write, self.left = write, 100

    def __call__(self, fd: int, data: bytes) -> int:
        if not self.left:
            raise full()
        self.left, room = 0, self.left
        return int(self.write(fd, data[:room]))


def test_loaders_of_one_file_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    for batch_size in (2, 3):
        list(DataLoader(Numbers(), batch_size=batch_size, record=path))
    found = journal.read(path)
    assert [(each.totals.steps, len(each.steps["seq"])) for each in found.loaders] == [(3, 3), (2, 2)]


def test_a_script_that_goes_to_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loader = DataLoader(Numbers(), batch_size=2, record="record.jsonl", name="half \udcff")
    monkeypatch.setattr(page, "PERIOD_NS", 0)
    list(loader)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    list(loader)
    del loader
    found = journal.read(tmp_path / "record.jsonl").loaders[0]
    assert (found.name, found.totals.epochs) == ("half ?", 2)
    assert not list(Path().iterdir())


def test_what_a_loader_leaves_behind_goes_without_a_collection() -> None:
    gc.collect()
    gc.disable()
    try:
        loader = DataLoader(Numbers(), batch_size=2)
        list(loader)
        kept = weakref.ref(loader._observer())
        del loader
        assert kept() is None
    finally:
        gc.enable()


def test_many_loaders_share_a_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    before = page.pages()
    monkeypatch.setattr(page, "MOST_IDLE", before + 1)
    monkeypatch.setattr(page, "MOST", before + 3)
    loaders = [DataLoader(Numbers(), batch_size=2) for _ in range(5)]
    for loader in loaders:
        assert len(list(loader)) == 3
    assert page.pages() == before + 1
    iterators: list[Any] = [iter(loader) for loader in loaders]
    assert page.pages() == before + 3
    assert [len(list(iterator)) for iterator in iterators] == [3] * 5
    assert page.pages() == before + 1
    assert [loader.stats()["record"]["loaders"][0]["totals"]["steps"] for loader in loaders] == [6] * 5
