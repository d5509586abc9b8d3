"""Rows about what the training loop does meanwhile: pair iterators, save, pin, leave early."""

from __future__ import annotations

import io
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, Sampler

import stoker
import stoker.errors
from stoker.testing import Gate, pass_through
from tests.compat.compare import assert_same
from tests.fault.datasets import Marks
from tests.fault.rows import Made

GONE_S = 10.0
"""Bound on a wait that ends at once when all is well."""


def numbers(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_zip_of_a_loader_with_itself(method: str) -> None:
    """Row 17: iterators of one loader with persistent workers are independent, again and again."""
    with stoker.DataLoader(
        Made(int), batch_size=4, num_workers=2, persistent_workers=True, multiprocessing_context=method
    ) as loader:
        for _ in range(2):
            pairs = [(left.tolist(), right.tolist()) for left, right in zip(loader, loader, strict=True)]
            assert pairs == [(batch, batch) for batch in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11])]


def test_a_loop_over_a_loader_inside_one_over_it() -> None:
    """Row 17: the inner loop does not use up what the outer one waits for."""
    with stoker.DataLoader(Made(int), batch_size=6, num_workers=1, persistent_workers=True) as loader:
        found = [(outer.tolist()[0], inner.tolist()[0]) for outer in loader for inner in loader]
    assert found == [(0, 0), (0, 6), (6, 0), (6, 6)]


def end(worker: Any) -> None:
    """Kill a worker and see it dead: any signal this process gets for it has come by then."""
    watch = os.pidfd_open(worker.pid)
    os.kill(worker.pid, signal.SIGKILL)
    gone, _, _ = select.select([watch], [], [], GONE_S)
    os.close(watch)
    assert gone


class Murderous(io.BytesIO):
    """A file during whose first write a worker dies; its own code catches nothing."""

    def __init__(self, worker: Any) -> None:
        super().__init__()
        self.worker = worker

    def write(self, data: Any) -> int:
        if self.worker is not None:
            end(self.worker)
            self.worker = None
        return super().write(data)


def tensors(index: int) -> torch.Tensor:
    return torch.full((5000,), float(index))


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_worker_that_dies_during_torch_save(method: str) -> None:
    """Row 27: nothing is raised there, no handler is installed, and ``next`` works on."""
    handler = signal.getsignal(signal.SIGCHLD)
    expected = list(stoker.DataLoader(Made(tensors), batch_size=2))
    iterator: Any = iter(
        stoker.DataLoader(Made(tensors), batch_size=2, num_workers=2, multiprocessing_context=method)
    )
    found = [next(iterator)]
    for worker in (0, 1):
        file = Murderous(iterator._workers[worker])
        torch.save({"weights": found[0]}, file)
        file.seek(0)
        assert_same(found[0], torch.load(file)["weights"])
    assert signal.getsignal(signal.SIGCHLD) is handler
    found.extend(iterator)
    assert_same(expected, found)


class Unpinnable:
    """A batch whose pinning fails for one of them."""

    def __init__(self, samples: list[int]) -> None:
        self.samples = samples

    def pin_memory(self) -> Unpinnable:
        if 4 in self.samples:
            raise OSError(12, "cannot pin", "batch 1")
        return self


@pytest.fixture
def _accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch believes in an accelerator, so that it pins."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: None)


@pytest.mark.usefixtures("_accelerator")
@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_pinning_that_fails(num_workers: int) -> None:
    """Row 28: the real error is raised, for the batch it belongs to; the others arrive."""
    loader: Any = stoker.DataLoader(
        Made(int), batch_size=4, pin_memory=True, collate_fn=Unpinnable, num_workers=num_workers
    )
    iterator = iter(loader)
    assert next(iterator).samples == [0, 1, 2, 3]
    with pytest.raises(OSError, match="cannot pin") as caught:
        next(iterator)
    assert caught.value.filename == "batch 1"
    assert next(iterator).samples == [8, 9, 10, 11]
    assert next(iterator, None) is None


@pytest.mark.usefixtures("_accelerator")
@pytest.mark.parametrize("num_workers", [0, 1])
def test_pinning_that_torch_refuses(num_workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 28: the same for the error of torch's own allocator."""

    def refuse(tensor: torch.Tensor, device: object = None) -> torch.Tensor:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch.Tensor, "pin_memory", refuse)
    loader = stoker.DataLoader(Made(tensors), batch_size=4, pin_memory=True, num_workers=num_workers)
    with pytest.raises(RuntimeError, match=r"^CUDA error: out of memory$"):
        next(iter(loader))


class Turns(Sampler[list[int]]):
    """Batches of indices, other ones at each pass."""

    def __init__(self, *turns: list[list[int]]) -> None:
        self.turns = iter(turns)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(next(self.turns))


class Stale(Dataset[int]):
    """Rows from 100 on are marked, ring a bell and wait at a gate."""

    def __init__(self, folder: Path, gate: str) -> None:
        self.marks = Marks(folder)
        self.gate = gate
        self.bell = str(folder / "bell")
        os.mkfifo(self.bell)

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        if index >= 100:
            self.marks.set(f"made-{index}")
            with open(self.bell, "wb") as bell:
                bell.write(b"!")
            pass_through(self.gate)
        return index


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(str(tmp_path))
    yield gate
    gate.close()


def leave_early(loader: Any, dataset: Stale, busy: int) -> None:
    """Take one batch, leave when this many workers are busy with what nobody will want."""
    bell = os.open(dataset.bell, os.O_RDWR)
    for batch in loader:
        assert batch.tolist() == [0]
        for _ in range(busy):
            assert os.read(bell, 1) == b"!"
        break
    os.close(bell)


FRESH = [[index] for index in range(10, 20)]


@pytest.mark.parametrize(("persistent", "busy"), [(True, 1), (False, 1), (False, 2)])
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_new_epoch_beside_stale_work(
    method: str, persistent: bool, busy: int, gate: Gate, tmp_path: Path
) -> None:
    """Row 36: fresh batches come although a worker is still on a sample of the epoch that was left; the gate stays shut."""
    dataset = Stale(tmp_path, gate.path)
    stale = [[0], *([100 + number] for number in range(busy))]
    with stoker.DataLoader(
        dataset, batch_sampler=Turns(stale, FRESH), num_workers=2, persistent_workers=persistent,
        multiprocessing_context=method,
    ) as loader:  # fmt: skip
        leave_early(loader, dataset, busy)
        assert numbers(loader) == FRESH


def test_stale_batches_are_dropped_not_made(gate: Gate, tmp_path: Path) -> None:
    """Row 36: a new epoch begins at once, and of what was planned for the old one only the sample in hand is finished."""
    dataset = Stale(tmp_path, gate.path)
    stale = [[0], *([100 + number] for number in range(8))]
    with stoker.DataLoader(
        dataset, batch_sampler=Turns(stale, FRESH), num_workers=1, persistent_workers=True, prefetch_factor=8
    ) as loader:
        leave_early(loader, dataset, 1)
        iterator = iter(loader)
        gate.open()
        assert numbers(iterator) == FRESH
    assert dataset.marks.count("made-") == 1


def test_without_restarts_a_death_is_raised_in_next(gate: Gate, tmp_path: Path) -> None:
    """Row 27: where a death is an error, ``torch.save`` goes through all the same and ``next`` raises it."""
    dataset = Stale(tmp_path, gate.path)
    bell = os.open(dataset.bell, os.O_RDWR)
    iterator: Any = iter(stoker.DataLoader(dataset, batch_sampler=[[0], [100]], num_workers=1, restarts=0))
    weights = next(iterator)
    assert os.read(bell, 1) == b"!"
    os.close(bell)
    file = Murderous(iterator._workers[0])
    torch.save({"weights": weights}, file)
    assert file.worker is None
    with pytest.raises(RuntimeError, match="killed by signal: Killed"):
        next(iterator)
