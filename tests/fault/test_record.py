"""The live record of real loaders: parts that add up, samples by index, events, and a file that survives a kill."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

import stoker
from stoker._record import journal
from stoker._record.schema import RunRecord
from tests import warm


class Rows(Dataset[Any]):
    """Takes 1 ms for a row and 30 for one of them. ``deadly``: that one kills its worker, the first time."""

    def __init__(self, length: int = 96, slow: int = 41, deadly: Path | None = None) -> None:
        self.length = length
        self.slow = slow
        self.deadly = deadly

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.slow and self.deadly is not None and not self.deadly.exists():
            self.deadly.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.03 if index == self.slow else 0.001)
        return torch.full((4,), float(index))


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        for number in range(40):
            time.sleep(0.001)
            yield number


def loaded(loader: Any) -> Any:
    """The one loader of its live record, which is checked."""
    record = RunRecord.from_dict(loader.stats()["record"])
    (found,) = record.loaders
    blamed = sum(each.ns for each in found.blame)
    assert blamed == pytest.approx(found.totals.wait_ns, rel=0.01)
    assert all(each.ns > 0 for each in found.blame)
    assert found.totals.wait_ns <= found.totals.wall_ns
    return found


@pytest.mark.parametrize("executor", ["process", "thread", "inline"])
def test_parts_add_up_and_the_slow_sample_is_named(executor: Any) -> None:
    workers = 0 if executor == "inline" else 2
    with stoker.DataLoader(
        Rows(), batch_size=16, num_workers=workers, executor=executor, name="train"
    ) as loader:
        for _ in range(2):
            assert sum(len(batch) for batch in loader) == 96
        found = loaded(loader)
    totals = found.totals
    assert (found.name, found.engine, found.executor) == ("train", "stoker", executor)
    assert (totals.epochs, totals.steps, totals.rows, totals.batches) == (2, 12, 192, 12)
    assert {each.index: each.ns for each in found.slowest}[41] >= 30_000_000
    path, _, line = (found.site or "").rpartition(":")
    assert path.endswith("test_record.py")
    assert "stoker.DataLoader(" in Path(__file__).read_text().splitlines()[int(line) - 1]
    assert (found.options["num_workers"].value, found.options["batch_size"].why) == (workers, "given")
    if executor == "process":
        start = found.options["start_method"]
        assert (start.value, start.why) == (multiprocessing.get_start_method(), "the platform's default")
    assert sum(one.rows for one in found.workers) == 192
    assert {one.worker for one in found.workers} <= ({-1} if executor == "inline" else {0, 1})
    by_cause = {
        cause: sum(each.ns for each in found.blame if each.cause == cause) for cause in ("io", "compute")
    }
    assert by_cause["io"] > by_cause["compute"]
    assert len(found.steps["seq"]) >= 12
    assert found.load.wall_ns > 0


def test_a_stream_has_a_record_too() -> None:
    with stoker.DataLoader(Stream(), batch_size=8, num_workers=2) as loader:
        assert len(list(loader)) == 10
        found = loaded(loader)
    assert (found.totals.steps, found.totals.rows) == (10, 80)


def test_a_worker_that_died_is_an_event(tmp_path: Path) -> None:
    rows = Rows(deadly=tmp_path / "died")
    with stoker.DataLoader(rows, batch_size=16, num_workers=2) as loader:
        assert len(list(loader)) == 6
        found = loaded(loader)
    assert found.totals.worker_deaths == 1
    (event,) = [each for each in found.events if each.kind == "restart"]
    assert "index 41" in event.reason


def test_a_bad_sample_is_an_event() -> None:
    class Bad(Rows):
        def __getitem__(self, index: int) -> torch.Tensor:
            if index == 5:
                raise ValueError("broken file")
            return super().__getitem__(index)

    loader = stoker.DataLoader(Bad(16, slow=-1), batch_size=8, on_bad_sample="skip")
    assert [len(batch) for batch in loader] == [7, 8]
    found = loaded(loader)
    assert [(each.kind, "broken file" in each.reason) for each in found.events] == [("bad_sample", True)]
    assert found.totals.bad_samples == 1


def test_nobody_has_to_keep_one() -> None:
    with stoker.DataLoader(Rows(32), batch_size=8, num_workers=2, record=False) as loader:
        assert len(list(loader)) == 4
        assert loader.stats()["record"] is None


def test_two_iterators_of_one_loader_share_a_record() -> None:
    with stoker.DataLoader(Rows(32), batch_size=8, num_workers=2) as loader:
        assert [len(a) + len(b) for a, b in zip(loader, loader, strict=True)] == [16] * 4
        found = loaded(loader)
    assert (found.totals.epochs, found.totals.steps) == (2, 8)


def test_other_threads_may_ask_at_any_time() -> None:
    with stoker.DataLoader(Rows(2000, slow=-1), batch_size=2, num_workers=2) as loader:
        asked: list[int] = []
        over = threading.Event()

        def ask() -> None:
            while not over.is_set():
                asked.append(loaded(loader).totals.steps)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            assert len(list(loader)) == 1000
        finally:
            over.set()
            thread.join()
        assert loaded(loader).totals.steps == 1000
    assert asked == sorted(asked)


def test_a_forked_child_keeps_its_own(tmp_path: Path) -> None:
    loader = stoker.DataLoader(Rows(16, slow=-1), batch_size=8, record=tmp_path)
    assert len(list(loader)) == 2
    pid = os.fork()
    if not pid:
        steps = -1
        try:
            list(loader)
            steps = loaded(loader).totals.steps
        finally:
            os._exit(steps)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    assert loaded(loader).totals.steps == 2
    assert len(list(loader)) == 2
    assert loaded(loader).totals.steps == 4


KILLED = """
import os, signal, time, torch, stoker

class Rows(torch.utils.data.Dataset):
    def __len__(self): return 100000
    def __getitem__(self, index): return torch.full((4,), float(index))

if __name__ == "__main__":
    loader = stoker.DataLoader(Rows(), batch_size=4, num_workers=2, record={folder!r})
    for number, batch in enumerate(loader):
        if number == 400:
            print("far enough", flush=True)
        time.sleep(0.005)
"""


def test_a_killed_job_leaves_a_record_that_can_be_read(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    folder = tmp_path / "records"
    script.write_text(KILLED.format(folder=str(folder)))
    job = warm.Popen([str(script)], stdout=subprocess.PIPE)
    try:
        assert job.stdout is not None
        assert "far enough" in job.stdout.readline()
    finally:
        job.kill()
        job.wait()
        if job.stdout is not None:
            job.stdout.close()
    record = journal.read(folder)
    (found,) = record.loaders
    assert not record.run.ended
    assert found.totals.steps > 50
    assert sum(each.ns for each in found.blame) == pytest.approx(found.totals.wait_ns, rel=0.01)
    assert record.machine.cpus
