"""Processes that end or fork around a loader: a parent killed with its workers busy, a fork with batches in hand."""

from __future__ import annotations

import functools
import gc
import os
import select
import signal
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
import stoker.errors
from tests import warm

GONE_S = 10.0
"""Bound on a wait that ends at once when all is well; only a worker that stays makes it run out."""

ORPHANS = """
    import os, sys
    sys.path.insert(0, sys.argv[2])
    from stoker import DataLoader
    from tests.fault.datasets import Gated

    class Busy(Gated):
        def __getitem__(self, index):
            os.write(1, f"{os.getpid()}\\n".encode())
            return super().__getitem__(index)

    if __name__ == "__main__":
        dataset = Busy(sys.argv[3], 0)
        batches = [[0], [-1]]  # one worker waits in the kernel, the other computes
        options = dict(batch_sampler=batches, num_workers=2, multiprocessing_context=sys.argv[1])
        iterator = iter(DataLoader(dataset, **options))
        next(iterator)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_end_with_a_parent_that_was_killed(method: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(ORPHANS))
    root = Path(__file__).parents[2]
    with warm.Popen([str(script), method, str(root), str(gate)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        watches = [os.pidfd_open(int(parent.stdout.readline())) for _ in range(2)]
        parent.send_signal(signal.SIGKILL)
    for watch in watches:
        gone, _, _ = select.select([watch], [], [], GONE_S)
        os.close(watch)
        assert gone, "a worker outlives its parent"


class Rows(Dataset[torch.Tensor]):
    """Rows too large to be copied out of their slot."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((5000,), float(index))


def in_child(work: Callable[[], bool]) -> int:
    """Fork, do the work in the child, end it without cleaning up; its pid. Exit code 0 says that work gave True."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return pid


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("keep", [True, False], ids=["parent keeps", "parent drops"])
def test_a_forked_child_keeps_its_batch_while_the_parent_goes_on(keep: bool) -> None:
    reading, writing = os.pipe()
    with stoker.DataLoader(Rows(), 1, num_workers=2, persistent_workers=True) as loader:
        iterator: Any = iter(loader)
        next(iterator)
        batch = next(iterator)

        def check() -> bool:
            os.read(reading, 1)  # the parent has gone through all the others by then
            return bool((batch == 1).all())

        child = in_child(check)
        if not keep:
            del check
            batch = None
        for number, other in enumerate(iterator, start=2):
            assert bool((other == number).all())
        for number, other in enumerate(loader):
            assert bool((other == number).all())
        os.write(writing, b"!")
        assert exit_code(child) == 0
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    ("workers", "clone", "seen"), [(2, False, True), (2, True, False), (0, False, False)]
)
def test_a_forked_child_writes_into_the_batch_that_docs_say_it_does(
    workers: int, clone: bool, seen: bool
) -> None:
    """docs/memory.md: batches of workers are shared with children; a clone, and a batch made without workers, is not."""
    with stoker.DataLoader(Rows(), 4, num_workers=workers) as loader:
        batch = next(iter(loader))
        given = batch.clone() if clone else batch

        def write() -> bool:
            given.fill_(-1)
            return bool((given == -1).all())

        assert exit_code(in_child(write)) == 0
        assert bool((batch == -1).all()) == seen
        assert seen or bool((batch[3] == 3).all())


def test_a_loader_is_inert_in_a_forked_child() -> None:
    with stoker.DataLoader(Rows(), 1, num_workers=2, persistent_workers=True) as loader:
        holder: list[Any] = [iter(loader)]
        first = next(holder[0])

        def meddle() -> bool:
            holder[0]._shutdown_workers()
            holder.clear()
            loader.close()
            gc.collect()
            return True

        assert exit_code(in_child(meddle)) == 0
        assert [float(batch[0, 0]) for batch in holder[0]] == list(range(1, 60))
        assert [float(batch[0, 0]) for batch in loader] == list(range(60))
        assert bool((first == 0).all())


def test_a_forked_child_can_have_a_loader_of_its_own() -> None:
    with stoker.DataLoader(Rows(), 1, num_workers=2, persistent_workers=True) as loader:
        iterator = iter(loader)
        next(iterator)

        def load() -> bool:
            with stoker.DataLoader(Rows(), 1, num_workers=1) as own:
                return [float(batch[0, 0]) for batch in own] == list(range(60))

        assert exit_code(in_child(load)) == 0
        assert [float(batch[0, 0]) for batch in iterator] == list(range(1, 60))


def test_an_iterator_says_that_it_stays_with_its_process() -> None:
    with stoker.DataLoader(Rows(), 1, num_workers=2) as loader:
        iterator = iter(loader)
        next(iterator)

        def ask() -> bool:
            try:
                next(iterator)
            except stoker.errors.LoaderClosed as error:
                return "forked" in str(error)
            return False

        assert exit_code(in_child(ask)) == 0
        assert [float(batch[0, 0]) for batch in iterator] == list(range(1, 60))


def test_a_persistent_loader_starts_its_own_workers_in_a_forked_child() -> None:
    with stoker.DataLoader(Rows(), 1, num_workers=2, persistent_workers=True) as loader:
        assert [float(batch[0, 0]) for batch in loader] == list(range(60))

        def again() -> bool:
            with loader:
                return [float(batch[0, 0]) for batch in loader] == list(range(60))

        assert exit_code(in_child(again)) == 0
        assert [float(batch[0, 0]) for batch in loader] == list(range(60))


def _is_last(batch: torch.Tensor) -> bool:
    return bool((batch == 59).all())


def test_slots_come_back_when_the_children_that_read_them_are_gone() -> None:
    with stoker.DataLoader(Rows(), 1, num_workers=1, persistent_workers=True) as loader:
        for _ in range(20):
            for batch in loader:
                kept = batch
            assert exit_code(in_child(functools.partial(_is_last, kept))) == 0
            del batch, kept
        for _ in loader:
            pass
        pool: Any = loader._iterator
        assert len(pool.slots) < 20
        assert pool.slots.live == len(pool.slots)
