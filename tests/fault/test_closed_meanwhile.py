"""A loader that another thread closes while this one is in ``iter()`` or ``next()``: LoaderClosed, and nothing is left."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker._runtime.engine.stall_monitor import StallMonitor
from stoker._runtime.pool.pool import Pool
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker.errors import LoaderClosed
from stoker.testing import Gate
from tests.fault.datasets import Gated


class Wide(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((6000,), float(index))


def close_elsewhere(loader: Any) -> None:
    """Close the loader on another thread."""
    thread = threading.Thread(target=loader.close)
    thread.start()
    thread.join()


def closes_after(loader: Any, patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """Let another thread close the loader right after a call of this method that asks for something."""
    method = getattr(owner, name)

    def closed_after(self: Any, *args: Any) -> Any:
        result = method(self, *args)
        if result != []:
            patch.undo()
            close_elsewhere(loader)
        return result

    patch.setattr(owner, name, closed_after)


def test_in_iter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first task cannot be sent any more."""
    with stoker.DataLoader(Wide(), batch_size=2, num_workers=1, persistent_workers=True) as loader:
        closes_after(loader, monkeypatch, Scheduler, "handle")
        with pytest.raises(LoaderClosed):
            next(iter(loader))
        assert len(list(loader)) == 30


@pytest.mark.parametrize(("owner", "name"), [(Scheduler, "handle"), (StallMonitor, "left_s")])
@pytest.mark.parametrize("options", [{}, {"record": False}], ids=str)
def test_in_next(owner: type, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A task cannot be sent, or there is nothing to wait for any more."""
    with stoker.DataLoader(Wide(), batch_size=2, num_workers=1, persistent_workers=True, **options) as loader:
        batches = iter(loader)
        kept = [next(batches) for _ in range(3)]
        closes_after(loader, monkeypatch, owner, name)
        with pytest.raises(LoaderClosed):
            kept += batches
        assert [batch.unique().tolist() for batch in kept] == [
            [2.0 * number, 2.0 * number + 1] for number in range(len(kept))
        ]
        assert len(list(loader)) == 30


def outcome_of(iterator: Iterator[Any]) -> tuple[threading.Thread, list[BaseException | None]]:
    """Start a thread that takes all batches. Returns it, and the list that will have the exception it ended with."""
    ended: list[BaseException | None] = []

    def take_all() -> None:
        try:
            for _ in iterator:
                pass
        except BaseException as error:
            ended.append(error)
        else:
            ended.append(None)

    thread = threading.Thread(target=take_all, daemon=True)
    thread.start()
    return thread, ended


EAGER: list[dict[str, Any]] = [
    {"num_workers": 1},
    {"num_workers": 2},
    {"num_workers": 2, "persistent_workers": True},
    {"num_workers": 2, "executor": "thread"},
]


def note_calls(patch: pytest.MonkeyPatch, owner: type, name: str, happened: Callable[[], Any]) -> None:
    """Call ``happened`` at the beginning of every call of this method."""
    method = getattr(owner, name)

    def noted(self: Any, *args: Any) -> Any:
        happened()
        return method(self, *args)

    patch.setattr(owner, name, noted)


@pytest.mark.parametrize("options", EAGER, ids=str)
def test_a_thread_that_waits_for_a_batch(
    options: dict[str, Any], gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loader: Any = stoker.DataLoader(Gated(gate.path, 0), batch_size=2, **options)
    waits = threading.Event()
    note_calls(monkeypatch, StallMonitor, "left_s", waits.set)
    note_calls(monkeypatch, Pool, "_release", gate.open)  # a thread in a sample leaves behind it
    thread, ended = outcome_of(iter(loader))
    assert waits.wait(30)
    loader.close()
    thread.join(30)
    assert [type(error) for error in ended] == [LoaderClosed]
    assert not [record.message for record in caplog.records if "exited" in record.message]


@pytest.mark.parametrize("options", EAGER, ids=str)
def test_closed_between_the_last_look_and_the_wait(
    options: dict[str, Any], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread in ``next()`` has seen an open pool. It leaves all the same, if the pool is closed before it waits."""
    loader: Any = stoker.DataLoader(Gated(gate.path, 0), batch_size=2, **options)
    closing = threading.Thread(target=loader.close)
    closed = threading.Event()

    def close_first() -> None:
        if closing.ident is None:
            closing.start()
            assert closed.wait(30)

    note_calls(monkeypatch, StallMonitor, "left_s", close_first)
    note_calls(monkeypatch, Pool, "_await_turn", closed.set)
    note_calls(monkeypatch, Pool, "_release", gate.open)
    thread, ended = outcome_of(iter(loader))
    thread.join(30)
    closing.join(30)
    assert [type(error) for error in ended] == [LoaderClosed]
    assert not closing.is_alive()


@pytest.mark.parametrize("options", EAGER, ids=str)
def test_quick_batches_and_closes_at_any_moment(options: dict[str, Any]) -> None:
    for round_number in range(12):
        loader: Any = stoker.DataLoader(Wide(), batch_size=2, **options)
        iterator = iter(loader)
        thread, ended = outcome_of(iterator)
        for _ in range(round_number * 200):
            pass
        loader.close()
        thread.join(30)
        assert [type(error) for error in ended] in ([LoaderClosed], [type(None)])


PREFETCHING = """
import queue, sys, threading, time, torch, json
from stoker import DataLoader

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 6400
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((1000,), index)

class Background(threading.Thread):
    def __init__(self, batches):
        super().__init__(daemon=True)
        self.queue = queue.Queue(2)
        self.batches = batches
        self.start()
    def run(self):
        for batch in self.batches:
            self.queue.put(batch)

background = Background(DataLoader(Samples(), batch_size=4, **json.loads(sys.argv[1])))
for _ in range(10):
    background.queue.get()
"""


@pytest.mark.parametrize(
    "options", ['{"num_workers": 2}', '{"num_workers": 2, "executor": "thread"}', "{}"], ids=str
)
def test_a_daemon_thread_in_an_epoch_says_nothing_at_exit(options: str, tmp_path: Path) -> None:
    script = tmp_path / "prefetching.py"
    script.write_text(PREFETCHING)
    ran = subprocess.run(
        [sys.executable, str(script), options], capture_output=True, text=True, check=False, timeout=120
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


ENDED_LATE = """
import torch
from stoker import DataLoader

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 20
    def __getitem__(self, index):
        return torch.zeros(3)

class Endless(DataLoader):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.iterator = super().__iter__()
    def __iter__(self):
        for _ in range(3):
            yield next(self.iterator)
    def __del__(self):
        self.iterator._shutdown_workers()

endless = Endless(Samples(), batch_size=4, num_workers=1)
for _ in endless:
    pass
"""


def test_a_subclass_that_ends_its_workers_at_exit_says_nothing(tmp_path: Path) -> None:
    """As Ultralytics' loader does, in its ``__del__``, when Python's own functions are gone."""
    script = tmp_path / "endless.py"
    script.write_text(ENDED_LATE)
    ran = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
