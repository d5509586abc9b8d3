"""What is told of a wait that does not end: who is on what, and the line of the user's code that waits. Nothing is lost by it."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from torch.utils.data import Dataset

import stoker
from stoker._runtime.protocol import status_page
from stoker._runtime.scheduler import policy
from stoker.errors import WorkerStalled, WorkerTimeout
from stoker.testing import Gate, pass_through
from tests.fault import holding
from tests.fault.holding import Rows, WaitingCollation, nothing, rest_of, wait_at_the_gate
from tests.fault.rows import METHODS

SHORT_S = 0.2
"""As long as a wait is not odd, in these tests."""

PROCESS = {"multiprocessing_context": "fork"}
THREAD = {"executor": "thread"}
EXECUTORS = [pytest.param({"multiprocessing_context": method}, id=method) for method in METHODS]
EXECUTORS.append(pytest.param(THREAD, id="thread"))
LOCAL = [pytest.param(PROCESS, id="process"), pytest.param(THREAD, id="thread")]


def stop_yourself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def wait_with_the_interpreter_held() -> None:
    """Waits in C and keeps everybody else from running Python, until a signal comes."""
    ctypes.PyDLL(None).pause()


class WaitingStart:
    """A worker_init_fn that waits."""

    def __init__(self, gate: str) -> None:
        self.gate = gate

    def __call__(self, worker: int) -> None:
        wait_at_the_gate(self.gate)


@contextmanager
def stalls(then: Callable[[str], Any], batch: int = 5) -> Iterator[list[str]]:
    """The stalls that are warned of; ``then`` is called with each, from inside ``next()``.

    Those of earlier batches do not count: on a busy machine any batch can come late.
    """
    said: list[str] = []

    def show(message: Warning | str, category: type[Warning], filename: str, line: int, *rest: Any) -> None:
        assert category is WorkerStalled, message
        assert filename == holding.__file__, "a warning points at the line that waits"
        awaited = re.search(r" s for batch (\d+) ", str(message))
        assert awaited, message
        if int(awaited[1]) < batch:
            return
        said.append(str(message))
        then(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", WorkerStalled)
        warnings.showwarning = show  # type: ignore[assignment]  # of what comes after the line, nothing is used
        yield said


def loader_of(dataset: Any, **options: Any) -> Any:
    return stoker.DataLoader(dataset, **{"batch_size": 10, "num_workers": 2, "name": "train", **options})


def started(loader: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[int]]:
    """An iterator whose workers are up, with its first rows. From here on short waits are odd."""
    monkeypatch.setattr(policy, "PATIENCE_S", 100.0)
    iterator = iter(loader)
    rows = next(iterator).tolist()
    monkeypatch.setattr(policy, "PATIENCE_S", SHORT_S)
    return iterator, rows


@pytest.mark.parametrize("options", EXECUTORS)
def test_a_hung_sample(options: dict[str, Any], gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = loader_of(Rows(wait_at_the_gate, gate.path), **options)
    iterator, rows = started(loader, monkeypatch)
    with stalls(lambda message: gate.open()) as said:
        rows += rest_of(iterator)
    assert rows == list(range(100))
    first, where, *stack = said[0].splitlines()
    assert re.match(r"DataLoader 'train' has waited \d+\.\d s for batch 5 \(recent ones took .* s\)", first)
    who = r"worker thread [01]" if options is THREAD else r"worker [01] \(pid \d+\)"
    assert re.fullmatch(rf"  {who} has been on dataset index 53 \(row 3 of batch 5\) for \d+\.\d s", where)
    assert any(re.search(r"holding\.py\", line \d+ in wait_at_the_gate", line) for line in stack)
    assert loader.stats()["stalls"] == len(said)


@pytest.mark.parametrize("options", LOCAL)
def test_a_hung_sample_among_quick_ones_blames_no_other(
    options: dict[str, Any], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = loader_of(Rows(wait_at_the_gate, gate.path, work=0), **options)
    iterator, rows = started(loader, monkeypatch)
    with stalls(lambda message: gate.open()) as said:
        rows += rest_of(iterator)
    assert rows == list(range(100))
    assert re.findall(r"was on dataset index (\d+)|has been on dataset index (\d+)", said[0]) in (
        [],
        [("", "53")],
    )


def test_warnings_come_at_ever_longer_intervals(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = loader_of(Rows(wait_at_the_gate, gate.path), **PROCESS)
    iterator, rows = started(loader, monkeypatch)
    with stalls(lambda message: gate.open() if len(said) == 4 else None) as said:
        rows += rest_of(iterator)
    assert rows == list(range(100))
    waited_s = [float(found[1]) for message in said if (found := re.search(r"waited (\d+\.\d) s", message))]
    assert len(waited_s) == 4
    for number, seconds in enumerate(waited_s):
        assert seconds >= SHORT_S * 2**number - 0.06, "rounded to a tenth"
    assert loader.stats()["stalls"] == 4


def test_a_stopped_worker_is_told_as_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = loader_of(Rows(stop_yourself), num_workers=1, **PROCESS)
    iterator, rows = started(loader, monkeypatch)
    worker = iterator._workers[0].pid
    with stalls(lambda message: os.kill(worker, signal.SIGCONT)) as said:
        rows += rest_of(iterator)
    assert rows == list(range(100))
    assert "dataset index 53" in said[0]
    assert f"(no stack: it is stopped (kill -CONT {worker} lets it continue))" in said[0]


def test_a_worker_stopped_while_it_had_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with loader_of(Rows(nothing), num_workers=1, persistent_workers=True, **PROCESS) as loader:
        assert rest_of(iter(loader)) == list(range(100))
        worker = loader._iterator._workers[0].pid
        row = loader._iterator.executor._status.row(0)
        while (
            row[status_page.PHASE] != status_page.IDLE
        ):  # it may still be on its way back from its last batch
            os.sched_yield()
        del row
        os.kill(worker, signal.SIGSTOP)
        os.waitpid(worker, os.WUNTRACED)
        monkeypatch.setattr(policy, "PATIENCE_S", SHORT_S)
        with stalls(lambda message: os.kill(worker, signal.SIGCONT), batch=0) as said:
            assert rest_of(iter(loader)) == list(range(100))
    assert f"a worker (pid {worker}) takes no work: it is stopped" in said[0]


@pytest.mark.parametrize("options", LOCAL)
def test_as_an_error_it_leaves_the_iterator_usable(
    options: dict[str, Any], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    iterator, rows = started(loader_of(Rows(wait_at_the_gate, gate.path), **options), monkeypatch)
    while len(rows) < 50:
        rows += next(iterator).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error", WorkerStalled)
        for _ in range(2):
            with pytest.raises(WorkerStalled, match="in wait_at_the_gate") as caught:
                next(iterator)
            del caught
    gate.open()
    with stalls(lambda message: None):
        rows += rest_of(iterator)
    assert rows == list(range(100))


@pytest.mark.parametrize("options", LOCAL)
def test_a_hang_in_collation(options: dict[str, Any], gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread may hold up earlier batches, too: the first ones are collated on one thread at a time."""
    loader = loader_of(Rows(nothing), collate_fn=WaitingCollation(gate.path), **options)
    iterator, rows = started(loader, monkeypatch)
    with stalls(lambda message: gate.open() if "in wait_at_the_gate" in message else None, batch=0) as said:
        rows += rest_of(iterator)
    assert rows == list(range(100))
    assert "has been on the collation of batch 5 of dataset indices [50, 51, 52, 53, " in said[-1]


class Overtaken(Dataset[int]):
    """Row 43 is ready when a later batch is being collated."""

    def __init__(self, collated: threading.Event) -> None:
        self.collated = collated

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index == 43:
            self.collated.wait()
        return index


def test_a_collation_held_up_by_another_threads_tells_that_ones_stack(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batches are collated on one thread at a time."""
    collated, waiting = threading.Event(), WaitingCollation(gate.path)

    def collate(samples: list[int]) -> Any:
        if 53 in samples:
            collated.set()
        return waiting(samples)

    iterator, rows = started(loader_of(Overtaken(collated), collate_fn=collate, **THREAD), monkeypatch)
    with stalls(lambda message: gate.open() if "collate_fn, which" in message else None, batch=4) as said:
        rows += rest_of(iterator)
    assert rows == list(range(100))
    found = re.search(
        r"worker thread ([01]) has been on the collation of batch 4 .*\n *"
        r"\(waits until worker thread ([01]) leaves collate_fn, which runs on one thread at a time\)\n",
        said[-1],
    )
    assert found, said
    assert found[1] != found[2]
    assert "in wait_at_the_gate" in said[-1][found.end() :]


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_hang_in_worker_init_fn(method: str, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = loader_of(Rows(nothing), worker_init_fn=WaitingStart(gate.path), multiprocessing_context=method)
    monkeypatch.setattr(policy, "PATIENCE_S", SHORT_S)
    with stalls(lambda message: gate.open() if "in wait_at_the_gate" in message else None, batch=0) as said:
        assert rest_of(iter(loader)) == list(range(100))
    assert re.search(r"\n  worker [01] \(pid \d+\) has not started yet", said[-1])


def test_a_hang_in_worker_init_fn_of_threads(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = loader_of(Rows(nothing), worker_init_fn=WaitingStart(gate.path), **THREAD)
    monkeypatch.setattr(policy, "PATIENCE_S", SHORT_S)
    with stalls(lambda message: gate.open(), batch=0) as said:
        assert rest_of(iter(loader)) == list(range(100))
    assert "has waited" in said[0]


def test_c_code_that_holds_the_interpreter_still_tells_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked by a signal whose handler needs no interpreter; here the signal also ends the wait."""
    loader = loader_of(Rows(wait_with_the_interpreter_held), **PROCESS)
    iterator, rows = started(loader, monkeypatch)
    with stalls(lambda message: None) as said:
        rows += rest_of(iterator)
    assert rows == list(range(100))
    assert "in wait_with_the_interpreter_held" in said[0]


def add_without_end() -> None:
    sum(range(10**13))


def test_a_computation_in_c_still_tells_its_stack() -> None:
    """Row 33, and leaving does not wait for it."""
    iterator = iter(loader_of(Rows(add_without_end), timeout=1, **PROCESS))
    with pytest.raises(WorkerTimeout, match="in add_without_end") as caught:
        rest_of(iterator)
    del caught
    iterator._shutdown_workers()


@pytest.mark.parametrize("options", LOCAL)
def test_the_timeout_names_worker_index_and_stack(options: dict[str, Any], gate: Gate) -> None:
    """Row 33: ``DataLoader timed out after N seconds``, no cause."""
    iterator = iter(loader_of(Rows(wait_at_the_gate, gate.path), timeout=3, **options))
    rows: list[int] = []
    with pytest.raises(WorkerTimeout) as caught:
        while True:
            rows += next(iterator).tolist()
    lines = str(caught.value).splitlines()
    del caught
    assert rows == list(range(50))
    assert lines[0] == "DataLoader timed out after 3 seconds"
    assert re.match(
        r"  worker (thread )?[01].* has been on dataset index 53 \(row 3 of batch 5\) for", lines[1]
    )
    assert any("in wait_at_the_gate" in line for line in lines[2:])
    gate.open()
    assert rows + rest_of(iterator) == list(range(100))


def test_a_users_project_may_be_called_stoker(gate: Gate) -> None:
    """The stack of a thread is the user's own, wherever it lies."""
    scope: dict[str, Any] = {"pass_through": pass_through}
    exec(compile("def mine(path):\n    pass_through(path)\n", "/home/me/stoker/train.py", "exec"), scope)
    iterator = iter(loader_of(Rows(scope["mine"], gate.path), timeout=1, **THREAD))
    with pytest.raises(WorkerTimeout) as caught:
        rest_of(iterator)
    text = str(caught.value)
    del caught
    gate.open()
    iterator._shutdown_workers()
    assert 'File "/home/me/stoker/train.py", line 2 in mine' in text


def test_a_worker_writes_its_size_to_the_status_page() -> None:
    """After an OOM kill nobody can ask it any more."""
    iterator = iter(loader_of(Rows(nothing), num_workers=1, **PROCESS))
    next(iterator)
    resident = iterator._pool.executor._status.row(0)[status_page.RESIDENT_BYTES]
    with open(f"/proc/{iterator._workers[0].pid}/statm") as file:
        now = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert now / 2 < resident < now * 2
    iterator._shutdown_workers()


class Clinging(Dataset[int]):
    """Never lets go of its caches; writes a byte when it is asked to."""

    def __init__(self, asked_fd: int) -> None:
        self.asked_fd = asked_fd

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        return index

    def __stoker_trim__(self) -> None:
        os.write(self.asked_fd, b"!")
        threading.Event().wait()


def test_who_never_lets_go_of_its_caches_is_named_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    try:
        with loader_of(Clinging(theirs), num_workers=1, persistent_workers=True, **PROCESS) as loader:
            assert rest_of(loader) == list(range(20))
            [worker] = loader._iterator._workers
            loader.trim()
            os.read(ours, 1)
            monkeypatch.setattr(policy, "PATIENCE_S", SHORT_S)
            with stalls(lambda message: None, batch=0) as said:
                assert rest_of(iter(loader)) == list(range(20))
            assert loader._iterator._workers[0].pid != worker.pid
    finally:
        os.close(ours)
        os.close(theirs)
    assert f"worker 0 (pid {worker.pid}) has been on a request to free its caches" in said[0]
    assert "__stoker_trim__" in said[0]
