"""The forker makes workers that are the parent's own children, and what it cannot make the parent makes itself."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import stoker
from stoker._runtime.executors.process import forker

WORKERS = 6

pytestmark = pytest.mark.skipif(
    not forker.is_supported(), reason="this system has no clone3 with CLONE_PARENT"
)


class Pids(Dataset[Any]):
    """Each sample says which process made it, and who that process takes for its parent."""

    def __init__(self, delay_s: float = 0.002) -> None:
        self.delay_s = delay_s

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        time.sleep(self.delay_s)
        return index, os.getpid(), os.getppid()


def loader_of(**options: Any) -> Any:
    return stoker.DataLoader(Pids(), 4, num_workers=WORKERS, multiprocessing_context="fork", **options)


def test_all_workers_are_children_of_the_parent_and_all_work() -> None:
    with loader_of(persistent_workers=True) as loader:
        iterator = iter(loader)
        rows = [row for index, pid, ppid in iterator for row in zip(index, pid, ppid, strict=True)]
        assert [int(row[0]) for row in rows] == list(range(120))
        assert {int(row[2]) for row in rows} == {os.getpid()}
        handles = {handle.pid for handle in iterator._workers}
        assert len(handles) == WORKERS
        assert {int(row[1]) for row in rows} <= handles
        assert handles <= {child.pid for child in psutil.Process().children()}
    assert not handles & {child.pid for child in psutil.Process().children()}


def test_a_pid_can_be_asked_for_at_once_and_the_worker_joined() -> None:
    iterator = iter(loader_of())
    workers = list(iterator._workers)
    assert len({worker.pid for worker in workers}) == WORKERS
    assert all(worker.is_alive() for worker in workers)
    for _ in iterator:
        pass
    for worker in workers:
        worker.join(10)
        assert worker.exitcode == 0


class Shards(IterableDataset[Any]):
    def __iter__(self) -> Any:
        info = get_worker_info()
        assert info is not None
        return iter(range(info.id, 60, info.num_workers))


def test_each_worker_of_an_iterable_has_its_shard() -> None:
    loader = stoker.DataLoader(Shards(), 5, num_workers=WORKERS, multiprocessing_context="fork")
    assert sorted(torch.cat(list(loader)).tolist()) == list(range(60))


def test_all_workers_see_the_dataset_as_it_was_at_iter() -> None:
    class Versioned(Pids):
        version = 1

        def __getitem__(self, index: int) -> Any:
            time.sleep(0.005)
            return self.version

    dataset = Versioned()
    iterator = iter(stoker.DataLoader(dataset, 4, num_workers=WORKERS, multiprocessing_context="fork"))
    dataset.version = 2
    assert set(torch.cat(list(iterator)).tolist()) == {1}


def test_a_worker_that_is_killed_is_replaced() -> None:
    iterator = iter(loader_of(restarts=3))
    seen = [next(iterator)[0]]
    os.kill(iterator._workers[WORKERS - 1].pid, signal.SIGKILL)
    seen += [index for index, _, _ in iterator]
    assert torch.cat(seen).tolist() == list(range(120))


@pytest.mark.parametrize("number", [11, 38], ids=["EAGAIN", "ENOSYS"])
def test_what_the_forker_is_refused_the_parent_does(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(clone: Any) -> tuple[int, int]:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(forker._Clone, "__call__", refuse)
    monkeypatch.setattr(forker, "_supported", True)
    rows = [int(row) for index, _, _ in loader_of() for row in index]
    assert rows == list(range(120))
    assert forker.is_supported() == (number == 11)


def test_a_forker_that_dies_leaves_its_work_to_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(forker, "_make", die)
    iterator = iter(loader_of(persistent_workers=True))
    rows = [int(row) for index, _, _ in iterator for row in index]
    assert rows == list(range(120))
    assert len({worker.pid for worker in iterator._workers}) == WORKERS


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_leaving_early_leaves_nobody_behind(batches: int) -> None:
    before = {child.pid for child in psutil.Process().children()}
    with loader_of() as loader:
        iterator = iter(loader)
        for _ in range(batches):
            next(iterator)
        del iterator
    assert {child.pid for child in psutil.Process().children()} <= before


def test_a_stopped_forker_makes_no_more_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    real = forker._make

    def slowly(*parts: Any) -> None:
        time.sleep(0.2)
        real(*parts)

    monkeypatch.setattr(forker, "_make", slowly)
    loader = stoker.DataLoader(Pids(), 4, num_workers=40, multiprocessing_context="fork")
    iterator = iter(loader)
    next(iterator)
    handles = list(iterator._workers)
    iterator._shutdown_workers()
    assert all(handle.exitcode == 0 and not handle.is_alive() for handle in handles)
    assert sum(handle.pid is None for handle in handles) > 20
