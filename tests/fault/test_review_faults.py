"""What an adversarial reading of crash recovery, hangs and exits found. A test that fails today says so and why."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import sys
import threading
from multiprocessing import forkserver, process
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate, get_worker_info

import stoker
import stoker.errors
from stoker._runtime.protocol import stacks
from stoker.testing import Gate, pass_through
from tests.fault.datasets import Deadly, Marks, die
from tests.fault.rows import Made, run, said

OPEN_S = 5
"""A ``timeout`` for loaders that must not wait at all: what hangs ends in an error."""


def values(loader: Any) -> list[int]:
    return [value for batch in loader for value in batch.tolist()]


def kill(worker: Any) -> None:
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()


def test_persistent_workers_are_there_again_after_a_run_that_was_given_up() -> None:
    with stoker.DataLoader(
        Made(int), num_workers=1, persistent_workers=True, restarts=0, timeout=OPEN_S
    ) as loader:
        assert values(loader) == list(range(12))
        kill(loader._iterator._workers[0])  # type: ignore[union-attr]
        with pytest.raises(stoker.errors.WorkerDied):
            values(loader)
        assert values(loader) == list(range(12))


def test_persistent_workers_that_could_not_start_may_start_later(tmp_path: Path) -> None:
    marks = Marks(tmp_path)

    def refuse(worker: int) -> None:
        if any(marks.set(f"start-{time}") for time in range(3)):
            os._exit(3)

    with stoker.DataLoader(
        Made(int), num_workers=1, persistent_workers=True, worker_init_fn=refuse, timeout=OPEN_S
    ) as loader:
        with pytest.raises(stoker.errors.WorkerDied, match="before it could take any work"):
            values(loader)
        assert values(loader) == list(range(12))


class Threaded(Made):
    """In a worker, the first sample leaves a thread behind that never ends; a later one leaves the process, once."""

    def __init__(self, folder: Path, how: str) -> None:
        super().__init__(int)
        self.marks = Marks(folder)
        self.how = how
        self.thread: threading.Thread | None = None

    def __getitem__(self, index: int) -> int:
        if get_worker_info() is not None:
            if self.thread is None:
                self.thread = threading.Thread(target=threading.Event().wait)
                self.thread.start()
            if index == 5 and self.marks.set("left"):
                if self.how == "exit":
                    sys.exit(3)
                raise KeyboardInterrupt
        return index


@pytest.mark.parametrize("how", ["exit", "interrupt"])
def test_a_worker_that_leaves_does_not_wait_for_its_threads(how: str, tmp_path: Path) -> None:
    loader = stoker.DataLoader(Threaded(tmp_path, how), batch_size=2, num_workers=2, timeout=OPEN_S)
    assert values(loader) == list(range(12))


def test_a_thread_that_never_ends_does_not_keep_its_worker(tmp_path: Path) -> None:
    iterator = iter(stoker.DataLoader(Threaded(tmp_path, "exit"), batch_size=2, num_workers=1))
    next(iterator)
    [worker] = iterator._workers
    del iterator
    assert not worker.is_alive()


class DeadlyCollation:
    """Torch's collation; every fourth batch kills its worker once, after its tensors are in the slot."""

    def __init__(self, folder: Path) -> None:
        self.marks = Marks(folder)

    def __call__(self, samples: list[torch.Tensor]) -> Any:
        batch = default_collate(samples)
        first = int(samples[0][0])
        if first % 4 == 0 and self.marks.set(f"death-{first}"):
            die(None)
        return batch


class Wide(Made):
    def __len__(self) -> int:
        return 64


def test_the_memory_of_what_died_is_given_back(tmp_path: Path) -> None:
    nbytes = 1 << 20
    dataset = Wide(lambda index: torch.full((nbytes,), index, dtype=torch.uint8))
    loader = stoker.DataLoader(
        dataset, num_workers=1, prefetch_factor=2, collate_fn=DeadlyCollation(tmp_path)
    )
    iterator: Any = iter(loader)
    most = 0
    for batch in iterator:
        if iterator._pool is not None:
            most = max(most, iterator._pool.arena.resident_bytes())
        del batch
    assert loader.stats()["worker_deaths"] == 16
    assert most < 12 * nbytes


def stop_fork_server() -> None:
    """For the tests that follow in this process: they get one whose socket is where it should be."""
    with contextlib.suppress(OSError):
        forkserver._forkserver._stop()  # type: ignore[attr-defined]
    forkserver._forkserver._forkserver_address = None  # type: ignore[attr-defined]
    process.current_process()._config.pop("tempdir", None)  # type: ignore[attr-defined]


def test_a_fork_server_whose_socket_vanished_is_started_anew() -> None:
    loader = stoker.DataLoader(Made(int), num_workers=1, multiprocessing_context="forkserver")
    iterator = iter(loader)
    assert next(iterator).item() == 0
    place = os.path.dirname(forkserver._forkserver._forkserver_address)  # type: ignore[attr-defined]
    shutil.rmtree(place)
    try:
        kill(iterator._workers[0])
        assert values(iterator) == list(range(1, 12))
    finally:
        loader.close()  # its worker may still be leaving, and the server tells how it ended
        stop_fork_server()
        os.makedirs(
            place, 0o700, exist_ok=True
        )  # multiprocessing removes it at exit, and complains if it cannot


def test_a_death_after_that_of_the_fork_server_is_not_blamed_on_the_dataset(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loader = stoker.DataLoader(Made(int), num_workers=1, multiprocessing_context="forkserver")
    iterator = iter(loader)
    assert next(iterator).item() == 0
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    os.kill(server, signal.SIGKILL)
    os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
    kill(iterator._workers[0])
    assert values(iterator) == list(range(1, 12))
    told = "".join(record.getMessage() for record in caplog.records if record.name == "stoker")
    assert "exit code 255" not in told
    assert "code of the dataset" not in told


class Refusing(logging.Handler):
    """Fails, as a handler may that writes to what is gone."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("a handler that fails")


@pytest.mark.parametrize("mode", ["raise", "skip"])
def test_a_log_handler_that_fails_costs_no_batch(
    mode: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def sample(index: int) -> int:
        if index == 5 and mode == "skip":
            raise ValueError
        if index == 5 and Marks(tmp_path).set("death"):
            die(None)
        return index

    monkeypatch.setattr(logging.getLogger("stoker"), "handlers", [Refusing()])
    monkeypatch.setattr(logging.getLogger("stoker"), "propagate", False)
    loader = stoker.DataLoader(Made(sample), batch_size=2, num_workers=1, on_bad_sample=mode)
    assert values(loader) == [index for index in range(12) if index != 5 or mode == "raise"]


INTERRUPTED_END = """
    import os, signal, sys, threading
    import stoker
    from stoker._runtime.executors.process.executor import ProcessExecutor

    class Stuck:
        def __len__(self):
            return 8

        def __getitem__(self, index):
            if index:
                threading.Event().wait()
            return index

    loader = stoker.DataLoader(Stuck(), num_workers=1, multiprocessing_context="fork")
    iterator = iter(loader)
    next(iterator)
    [worker] = iterator._workers
    wait = ProcessExecutor._await_ends

    def interrupted(self, patience_s):
        ProcessExecutor._await_ends = wait
        raise KeyboardInterrupt

    ProcessExecutor._await_ends = interrupted
    try:
        loader.close()
    except KeyboardInterrupt:
        loader.close()
    print("alive" if worker.is_alive() else "gone", flush=True)
"""


def test_an_impatient_interrupt_while_workers_end_leaves_none(tmp_path: Path) -> None:
    assert said(run(INTERRUPTED_END, folder=tmp_path)) == ["gone"]


def test_an_interrupt_while_a_batch_is_opened_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    iterator: Any = iter(stoker.DataLoader(Made(int), num_workers=1))
    assert next(iterator).item() == 0

    def interrupted(deliver: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(iterator._pool.opener, "open", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
    try:
        assert next(iterator).item() == 1
    except stoker.errors.Interrupted:
        iterator._shutdown_workers()


class Impatient:
    """A sampler in which Ctrl-C comes while the second iteration begins."""

    def __init__(self) -> None:
        self.epoch = 0

    def __iter__(self) -> Any:
        self.epoch += 1
        for index in range(12):
            if index == 1 and self.epoch == 2:
                raise KeyboardInterrupt
            yield index


def test_an_iterator_that_was_interrupted_at_its_start_does_not_disturb_the_next_one() -> None:
    with stoker.DataLoader(
        Made(int), sampler=Impatient(), num_workers=1, persistent_workers=True, timeout=OPEN_S
    ) as loader:
        assert values(loader) == list(range(12))
        with pytest.raises(KeyboardInterrupt) as kept:
            iter(loader)
        iterator = iter(loader)
        del kept  # with the traceback goes the iterator that failed
        assert values(iterator) == list(range(12))


def test_nobody_is_said_to_take_the_place_of_the_last(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def refuse(worker: int) -> None:
        os._exit(3)

    with pytest.raises(stoker.errors.WorkerDied):
        values(stoker.DataLoader(Made(int), num_workers=1, worker_init_fn=refuse))
    told = [record.getMessage() for record in caplog.records if record.name == "stoker"]
    assert "a new worker takes its place" not in told[-1]


CLOSED_STDOUT = """
    import os, sys
    os.close(1)  # as after ``>&-``
    import stoker

    loader = stoker.DataLoader(range(20), num_workers=1, multiprocessing_context="fork")
    iterator = iter(loader)
    try:
        print(os.readlink("/proc/self/fd/1"), file=sys.stderr)
    except FileNotFoundError:
        print(os.devnull, file=sys.stderr)
    del iterator
    os._exit(0)
"""


def test_what_is_printed_without_stdout_lands_in_nothing_of_ours(tmp_path: Path) -> None:
    assert run(CLOSED_STDOUT, folder=tmp_path).stderr.splitlines()[-1] == os.devnull


def test_a_worker_that_cannot_leave_stacks_is_not_asked_for_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def without_proc(self: stacks.StackFile, status_fd: int, worker: int) -> None:
        self._fd = -1

    gate = Gate(str(tmp_path))

    def sample(index: int) -> int:
        pass_through(gate.path)
        return index

    monkeypatch.setattr(stacks.StackFile, "__init__", without_proc)
    loader = stoker.DataLoader(Made(sample), num_workers=1, timeout=2, multiprocessing_context="fork")
    iterator = iter(loader)
    with pytest.raises(stoker.errors.WorkerTimeout):
        next(iterator)
    gate.open()
    assert values(iterator) == list(range(12))
    gate.close()
    assert loader.stats()["worker_deaths"] == 0


def test_bound_tickets_survive_kills(tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "rng": "torch"}
    loader = stoker.DataLoader(Deadly(tmp_path, {5, 9, 50}), **options)
    assert [index for batch in loader for index in batch["index"].tolist()] == list(range(200))
    assert loader.stats()["worker_deaths"] == 3
