"""The end of an epoch: StopIteration does not wait for workers, the next epoch gets their memory, and nothing is left."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

import stoker
from stoker._runtime.pool import finished_pools
from stoker._runtime.pool.housekeeper import Housekeeper
from stoker.testing import leak_guard

ROWS = 64


def rows(count: int = ROWS) -> TensorDataset:
    return TensorDataset(torch.arange(count * 100).reshape(count, 100))


def loader(dataset: Any = None, **arguments: Any) -> stoker.DataLoader[Any]:
    return stoker.DataLoader(dataset or rows(), batch_size=8, num_workers=2, **arguments)


def total(batches: Any) -> int:
    return sum(int(batch[0].sum()) for batch in batches)


def workers_of(iterator: Any) -> list[int]:
    return [worker.pid for worker in iterator._workers]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Reluctant(Dataset[Any]):
    """Its workers do not leave before a file is there."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 0:
            import multiprocessing.util

            multiprocessing.util.Finalize(None, self.linger, exitpriority=100)
        return torch.full((4,), index)

    def linger(self) -> None:
        until = time.monotonic() + 60
        while not self.gate.exists() and time.monotonic() < until:
            time.sleep(0.01)


def test_stop_iteration_does_not_wait_for_workers(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with loader(Reluctant(gate)) as loading:
        iterator = iter(loading)
        pids = workers_of(iterator)
        assert len(list(iterator)) == ROWS // 8
        assert any(is_there(pid) for pid in pids), "StopIteration came after the workers had left"
        gate.touch()
        assert len(list(loading)) == ROWS // 8
        loading.close()
        assert not any(is_there(pid) for pid in pids)


def test_a_worker_that_does_not_leave_is_ended_in_the_end(tmp_path: Path) -> None:
    loading = loader(Reluctant(tmp_path / "never"))
    iterator = iter(loading)
    pids = workers_of(iterator)
    list(iterator)
    loading.close()
    assert not any(is_there(pid) for pid in pids)


def test_the_next_epoch_gets_the_pages_of_the_last_one() -> None:
    with loader() as loading:
        expected = total(loading)
        found: Any = loading._finished_pools
        [kept] = found.kept()
        before = os.fstat(kept.arena.fd).st_ino
        iterator: Any = iter(loading)
        assert os.fstat(iterator._pool.arena.fd).st_ino == before
        assert found.kept() == []
        assert total(iterator) == expected


def test_batches_that_were_kept_stay_what_they_are() -> None:
    with loader() as loading:
        kept = list(loading)
        copies = [batch[0].clone() for batch in kept]
        for _ in range(3):
            assert total(loading) == sum(int(each.sum()) for each in copies)
        assert all(torch.equal(batch[0], copy) for batch, copy in zip(kept, copies, strict=True))


def test_idle_memory_goes_back_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_pools, "KEEP_S", 0.05)
    with loader() as loading:
        expected = total(loading)
        found: Any = loading._finished_pools
        until = time.monotonic() + 30
        while found.kept() and time.monotonic() < until:
            time.sleep(0.01)
        assert found.kept() == []
        assert loading.stats()["memory"]["arena_bytes"] == 0
        assert total(loading) == expected


def test_trim_gives_it_back_at_once() -> None:
    with loader() as loading:
        total(loading)
        assert loading.stats()["memory"]["arena_bytes"] > 0
        loading.trim()
        assert loading.stats()["memory"]["arena_bytes"] == 0


@pytest.mark.parametrize("how", ["close", "drop", "exit"])
def test_nothing_remains(how: str) -> None:
    with leak_guard():
        loading = loader()
        for _ in range(5):
            iterator = iter(loading)
            pids = workers_of(iterator)
            total(iterator)
        if how == "close":
            loading.close()
        elif how == "exit":
            with loading:
                total(loading)
        del loading, iterator
        assert not any(is_there(pid) for pid in pids)


def test_an_epoch_that_is_broken_off_ends_its_workers_first() -> None:
    with loader() as loading:
        for _ in range(3):
            iterator = iter(loading)
            pids = workers_of(iterator)
            next(iterator)
            del iterator
            assert not any(is_there(pid) for pid in pids)
        iterator = iter(loading)
        del iterator  # right after iter()
        assert total(loading) == total([[rows().tensors[0]]])


def test_two_iterators_at_once_end_one_after_the_other() -> None:
    with loader() as loading:
        expected = total(loading)
        first, second = iter(loading), iter(loading)
        assert total(first) == expected
        assert total(second) == expected
        assert total(loading) == expected


def test_a_worker_killed_while_it_leaves_harms_nobody(tmp_path: Path) -> None:
    with loader(Reluctant(tmp_path / "never")) as loading:
        iterator = iter(loading)
        pids = workers_of(iterator)
        list(iterator)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert len(list(iter(loading))) == ROWS // 8


def test_a_forked_child_leaves_the_parents_memory_alone() -> None:
    with loader() as loading:
        expected = total(loading)
        read_fd, write_fd = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                found: Any = loading._finished_pools
                before = os.fstat(found.kept()[0].arena.fd).st_ino
                iterator: Any = iter(loading)
                other = os.fstat(iterator._pool.arena.fd).st_ino != before
                code = 0 if other and total(iterator) == expected else 2
                loading.close()
            finally:
                os.write(write_fd, bytes([code]))
                os._exit(code)
        os.close(write_fd)
        with open(read_fd, "rb") as pipe:
            assert pipe.read() == b"\0"
        os.waitpid(pid, 0)
        assert total(loading) == expected


def test_many_epochs_leave_no_more_than_one() -> None:
    with loader() as loading:
        total(loading)
        loading.close()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            total(loading)
        loading.close()
        assert len(os.listdir("/proc/self/fd")) == before


def test_jobs_are_done_when_they_are_due_and_not_when_cancelled() -> None:
    keeper = Housekeeper()
    done: list[str] = []
    ready = threading.Event()
    late = keeper.do(lambda: done.append("late"), after_s=60)
    assert keeper.do(lambda: done.append("first")) is not None
    assert keeper.do(lambda: done.append("second")) is not None
    assert keeper.do(ready.set) is not None
    assert ready.wait(30)
    assert done == ["first", "second"]
    thread = keeper._thread
    keeper.forget(late)
    keeper.tidy()
    assert thread is not None
    assert not thread.is_alive(), "no job is left"
    again = threading.Event()
    assert keeper.do(again.set) is not None
    assert again.wait(30)
    assert done == ["first", "second"]


def test_a_job_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    keeper = Housekeeper()
    ready = threading.Event()

    def fail() -> None:
        raise ValueError("on purpose")

    keeper.do(fail)
    keeper.do(ready.set)
    assert ready.wait(30)
    assert "on purpose" in caplog.text
