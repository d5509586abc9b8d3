"""Workers: what they know of themselves, start methods, worker_init_fn, timeout, handles and exit codes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, get_worker_info

from tests.compat.compare import (
    BOTH,
    Arguments,
    StokerLoader,
    TorchLoader,
    assert_same,
    assert_same_run,
    mentions_index,
)
from tests.compat.samples import FAR, Augmented, Bulk, Endless, Shaped, Sharded, keep_rows

JOIN_S = 20
"""How long a worker that was told to go may take; it only bounds a failure."""


class AboutMe(Dataset[Any]):
    """Rows that tell who made them."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        if info is None:
            return {"index": index, "worker": None, "pid": os.getpid()}
        return {
            "index": index,
            "worker": info.id,
            "workers": info.num_workers,
            "seed": info.seed,
            "mine": info.dataset is self,
            "pid": os.getpid(),
            "threads": torch.get_num_threads(),
            "torch_seed": torch.initial_seed(),
        }


def facts(loader_class: Any, **arguments: Any) -> list[Any]:
    torch.manual_seed(5)
    return [row for rows in loader_class(AboutMe(), collate_fn=keep_rows, **arguments) for row in rows]


@pytest.mark.parametrize("loader_class", BOTH)
def test_worker_info(loader_class: Any) -> None:
    rows = facts(loader_class, num_workers=2)
    assert get_worker_info() is None
    assert {row["worker"] for row in rows} <= {0, 1}
    assert all(row["workers"] == 2 and row["mine"] and row["threads"] == 1 for row in rows)
    assert os.getpid() not in {row["pid"] for row in rows}
    seeds = {row["worker"]: row["seed"] for row in rows}
    assert len(set(seeds.values())) == len(seeds)


@pytest.mark.parametrize("loader_class", BOTH)
def test_there_is_no_worker_info_without_workers(loader_class: Any) -> None:
    assert all(row["worker"] is None and row["pid"] == os.getpid() for row in facts(loader_class))


def test_worker_seeds_and_assignment_are_torchs_on_request() -> None:
    names = ("index", "worker", "seed", "torch_seed")
    theirs = [{name: row[name] for name in names} for row in facts(TorchLoader, num_workers=2)]
    ours = [{name: row[name] for name in names} for row in facts(StokerLoader, num_workers=2, rng="torch")]
    assert ours == theirs


MARKS: list[int] = []


def mark(worker_id: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert info.id == worker_id
    info.dataset.marks = [worker_id]  # type: ignore[attr-defined]
    MARKS.append(worker_id)


class Marked(AboutMe):
    marks: list[int]

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        return (self.marks == [info.id], list(MARKS) == [info.id])


@pytest.mark.parametrize("loader_class", BOTH)
@pytest.mark.parametrize("persistent_workers", [False, True])
def test_worker_init_fn_runs_once_in_every_worker(loader_class: Any, persistent_workers: bool) -> None:
    loader = loader_class(
        Marked(),
        num_workers=2,
        worker_init_fn=mark,
        collate_fn=keep_rows,
        persistent_workers=persistent_workers,
    )
    for _ in range(2):
        assert list(loader) == [[(True, True)]] * 12
    assert MARKS == []


def refuse(worker_id: int) -> None:
    raise PermissionError(13, "not in this worker")


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_worker_init_fn_that_raises(num_workers: int) -> None:
    """torch raises the same type, and then takes five seconds a worker to leave: it does not run here."""
    with pytest.raises(PermissionError) as caught:
        list(StokerLoader(AboutMe(), num_workers=num_workers, worker_init_fn=refuse))
    assert caught.value.args == (13, "not in this worker")


def test_asking_again_after_a_failed_worker_init_fn_tells_nothing_unrelated() -> None:
    """torch's second next() complains about a variable of its own."""
    iterator = iter(StokerLoader(AboutMe(), num_workers=1, worker_init_fn=refuse))
    for _ in range(2):
        with pytest.raises((PermissionError, StopIteration)):
            next(iterator)


def never_called(worker_id: int) -> None:
    raise AssertionError("there is no worker")


@pytest.mark.parametrize("loader_class", BOTH)
def test_worker_init_fn_is_not_called_without_workers(loader_class: Any) -> None:
    assert len(list(loader_class(range(3), worker_init_fn=never_called))) == 3


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_start_methods_by_name(method: str) -> None:
    def build() -> Arguments:
        return {
            "dataset": Shaped("nested", 6),
            "batch_size": 2,
            "num_workers": 1,
            "multiprocessing_context": method,
        }

    assert_same_run(build)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_start_methods_by_object(method: str) -> None:
    context = multiprocessing.get_context(method)
    loader = StokerLoader(Sharded(), batch_size=4, num_workers=2, multiprocessing_context=context)
    assert loader.multiprocessing_context is context
    assert_same(list(TorchLoader(Sharded(), batch_size=4, num_workers=2)), list(loader))


def test_randomness_is_the_same_for_every_start_method() -> None:
    def run(**arguments: Any) -> list[Any]:
        torch.manual_seed(1)
        return list(StokerLoader(Augmented(8), batch_size=4, shuffle=True, **arguments))

    expected = run()
    for method in ("spawn", "forkserver"):
        assert_same(expected, run(num_workers=1, multiprocessing_context=method))


def test_a_spawned_worker_knows_local_classes_and_lambdas() -> None:
    """torch cannot pickle them; code travels by value in ours."""

    class Local(Bulk):
        pass

    loader = StokerLoader(
        Local(4),
        batch_size=2,
        num_workers=1,
        multiprocessing_context="spawn",
        collate_fn=lambda rows: len(rows),
    )
    assert list(loader) == [2, 2]


class Stuck(Endless):
    """One row that does not come. The wait has an end only for the case that nobody kills the worker."""

    def __getitem__(self, index: int) -> Any:
        if index == FAR:
            threading.Event().wait(60)
        return super().__getitem__(index)


@pytest.mark.parametrize("persistent_workers", [False, True])
def test_timeout(persistent_workers: bool) -> None:
    loader = StokerLoader(
        Stuck(), sampler=[1, FAR, 2], num_workers=1, timeout=0.5, persistent_workers=persistent_workers
    )
    iterator = iter(loader)
    assert next(iterator).tolist() == [[1, -1]]
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.5 seconds") as caught:
        next(iterator)
    assert mentions_index(caught.value, FAR)
    del caught  # a cycle through this frame: the collector would end iterator and sockets in any order


@pytest.mark.parametrize("loader_class", BOTH)
def test_a_generous_timeout_changes_nothing(loader_class: Any) -> None:
    assert len(list(loader_class(range(10), num_workers=2, timeout=60))) == 10


@pytest.mark.parametrize("loader_class", BOTH)
@pytest.mark.parametrize("persistent_workers", [False, True])
def test_worker_handles(loader_class: Any, persistent_workers: bool) -> None:
    iterator = iter(loader_class(AboutMe(), num_workers=2, persistent_workers=persistent_workers))
    next(iterator)
    workers = list(iterator._workers)
    assert len({worker.pid for worker in workers}) == 2
    assert all(worker.is_alive() and worker.exitcode is None for worker in workers)
    iterator._shutdown_workers()
    for worker in workers:
        worker.join(JOIN_S)
        assert not worker.is_alive()


@pytest.mark.parametrize("loader_class", BOTH)
@pytest.mark.parametrize("dataset", [AboutMe(), Sharded(9)], ids=["map", "iterable"])
def test_idle_workers_leave_with_code_zero(loader_class: Any, dataset: Any) -> None:
    iterator = iter(loader_class(dataset, num_workers=2, collate_fn=keep_rows))
    for _ in iterator:
        pass
    assert len(iterator._workers) == 2
    for worker in iterator._workers:
        worker.join(JOIN_S)
        assert worker.exitcode == 0


@pytest.mark.parametrize("loader_class", BOTH)
def test_a_worker_can_be_terminated(loader_class: Any) -> None:
    iterator = iter(loader_class(AboutMe(), num_workers=1, persistent_workers=True, collate_fn=keep_rows))
    for _ in iterator:
        pass
    (worker,) = iterator._workers
    if loader_class is TorchLoader:
        # its SIGCHLD handler would raise in the middle of this test
        torch._C._remove_worker_pids(id(iterator))
        iterator._worker_pids_set = False
    worker.terminate()
    worker.join(JOIN_S)
    assert not worker.is_alive()
    iterator._shutdown_workers()


@pytest.mark.parametrize("loader_class", BOTH)
def test_an_iterator_nobody_refers_to_is_cancelled_without_a_gc_run(loader_class: Any) -> None:
    gc.disable()
    try:
        iterator = iter(loader_class(AboutMe(), num_workers=2))
        next(iterator)
        workers = list(iterator._workers)
        del iterator
        for worker in workers:
            worker.join(JOIN_S)
            assert not worker.is_alive()
    finally:
        gc.enable()
