"""Memory of running loaders: the budget holds while nobody takes, idle loaders become small, and the figures tell the truth."""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker._host.memory_available import Gauge, MemoryAvailable
from stoker._runtime.scheduler import policy
from tests import warm

MIB = 1 << 20
ROW_BYTES = 8 * MIB
PATIENCE_S = 60.0
"""Bounds waits that end at once when all is well."""


class Telling(Dataset[torch.Tensor]):
    """Rows of 8 MiB. Writes a byte to a pipe for every row that is made, and another when it is asked to let go."""

    def __init__(self, rows: int, nbytes: int = ROW_BYTES) -> None:
        self.rows = rows
        self.nbytes = nbytes
        self.read_fd, self.write_fd = os.pipe()
        self.cache: list[bytes] = []

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> torch.Tensor:
        os.write(self.write_fd, b"r")
        if not self.cache:
            self.cache.append(os.urandom(1) * (32 * MIB))
        return torch.full((self.nbytes,), index, dtype=torch.uint8)

    def __stoker_trim__(self) -> None:
        self.cache.clear()
        os.write(self.write_fd, b"t")

    def hear(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            ready, _, _ = select.select([self.read_fd], [], [], PATIENCE_S)
            assert ready, f"only {received!r} was received"
            received += os.read(self.read_fd, count - len(received))
        return received

    def silent(self) -> bool:
        return not select.select([self.read_fd], [], [], 0)[0]

    def close(self) -> None:
        os.close(self.read_fd)
        os.close(self.write_fd)


@pytest.fixture
def telling() -> Any:
    made: list[Telling] = []

    def make(rows: int, nbytes: int = ROW_BYTES) -> Telling:
        made.append(Telling(rows, nbytes))
        return made[-1]

    yield make
    for each in made:
        each.close()


def loader_of(dataset: Dataset[Any], **options: Any) -> Any:
    given = {"batch_size": 1, "num_workers": 2, "multiprocessing_context": "fork", "prefetch_factor": 8}
    return stoker.DataLoader(dataset, **{**given, **options})


@pytest.mark.parametrize("executor", ["process", "thread"])
def test_the_budget_holds_while_nobody_takes(telling: Callable[..., Telling], executor: str) -> None:
    """Row 44: batches of 8 MiB, a window of 16 and a budget of 33 MiB: four are made ahead, and whatever is free is used again."""
    dataset = telling(40)
    context = "fork" if executor == "process" else None
    with loader_of(
        dataset, memory_budget="33MiB", executor=executor, multiprocessing_context=context
    ) as loader:
        iterator = iter(loader)
        for taken, batch in enumerate(iterator):
            assert batch[0, 0] == taken
            del batch
            if taken < 35:
                memory = loader.stats()["memory"]
                assert memory["arena_bytes"] <= 50 * MIB, "four to come, one that the user had, one more"
                assert ROW_BYTES <= memory["undelivered_bytes"] <= 33 * MIB
            if taken == 20:
                assert memory["budget_bytes"] == 33 * MIB
                assert memory["budget_reason"] == "given: 33 MiB"
                assert set(dataset.hear(taken + 5)) == {ord("r")}
                assert dataset.silent(), "a fifth to come would be more than 33 MiB"
        assert taken == 39


def test_trim_gives_memory_back(telling: Callable[..., Telling]) -> None:
    """An idle loader keeps little, and nothing after ``trim``; its workers let go of caches; the next epoch is the same."""
    dataset = telling(24)
    with loader_of(dataset, persistent_workers=True) as loader:
        kept = list(loader)
        assert loader.stats()["memory"]["leased_bytes"] >= 24 * ROW_BYTES
        dataset.hear(24)
        kept.clear()
        loader.trim()
        assert dataset.hear(2) == b"tt"
        memory = loader.stats()["memory"]
        assert memory["arena_bytes"] < MIB
        assert memory["leased_bytes"] == memory["undelivered_bytes"] == 0
        for worker in memory["workers"]:
            assert worker["private_bytes"] < 32 * MIB, "the cache is still there"
        kept = list(loader)
        assert [int(batch[0, -1]) for batch in kept] == list(range(24))
        del kept[1:]
        assert loader.stats()["memory"]["arena_bytes"] >= ROW_BYTES
    assert kept[0][0, -1] == 0, "what the user keeps survives the loader"


def test_an_epoch_leaves_little_behind(telling: Callable[..., Telling]) -> None:
    dataset = telling(24)
    with loader_of(dataset, persistent_workers=True, memory_budget="512MiB") as loader:
        for batch in loader:
            del batch
        idle = loader.stats()["memory"]["arena_bytes"]
        assert ROW_BYTES <= idle <= policy.IDLE_KEEP_BYTES
        iterator = iter(loader)
        next(iterator)
        del iterator  # in the middle of an epoch, with batches on their way
        loader.trim()
        assert len(list(loader)) == 24


def test_short_memory_trims_idle_loaders_and_shrinks_the_window(
    telling: Callable[..., Telling], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train and validation, both with persistent workers: while one is at work and memory is short the other lets go."""
    room = [MemoryAvailable(64 << 30, 256 << 30)]
    monkeypatch.setattr(Gauge, "read", lambda self: room[0])
    monkeypatch.setattr(policy, "BUDGET_INTERVAL_S", 0.0)
    train, validation = telling(24), telling(24)
    with (
        loader_of(train, persistent_workers=True) as first,
        loader_of(validation, persistent_workers=True) as second,
    ):
        for _ in range(2):
            for batch in second:
                del batch
        validation.hear(48)
        assert validation.silent()
        assert second.stats()["memory"]["arena_bytes"] >= ROW_BYTES
        iterator = iter(first)
        next(iterator)
        assert validation.silent(), "there is plenty of memory"
        reason = first.stats()["memory"]["budget_reason"]
        assert reason.startswith("a quarter of the 64")
        room[0] = MemoryAvailable(48 * MIB, 256 << 30)
        next(iterator)
        next(iterator)
        assert validation.hear(2) == b"tt"
        assert second.stats()["memory"]["arena_bytes"] < MIB
        assert 0 < first.stats()["memory"]["budget_bytes"] < 256 * MIB
        assert sum(1 for _ in iterator) == 21, "the window shrinks, and everything arrives"
        assert [int(batch[0, 0]) for batch in second] == list(range(24))


def test_trim_from_another_thread_in_the_middle_of_an_epoch(telling: Callable[..., Telling]) -> None:
    with loader_of(telling(24), persistent_workers=True) as loader:
        seen = []
        for batch in loader:
            seen.append(int(batch[0, -1]))
            thread = threading.Thread(target=loader.trim)
            thread.start()
            thread.join()
        assert seen == list(range(24))


GROWING = """
import json, os, sys
import numpy as np
import torch
import stoker
from stoker._runtime.worker import memory_probe

memory_probe._DUE_NS = 0  # forked workers have it: they measure themselves after their first batch
TOUCH = sys.argv[1] == "copies"
PAGES_BYTES = 48 << 20

class Growing:
    def __init__(self):
        self.words = [str(number) for number in range(600_000)]
        self.fd = os.memfd_create("stoker-test")
        os.truncate(self.fd, PAGES_BYTES)
        os.pwrite(self.fd, b"x" * PAGES_BYTES, 0)
        self.pages = np.memmap(f"/proc/self/fd/{self.fd}", dtype=np.uint8, mode="r+")

    def __len__(self):
        return 24

    def __getitem__(self, index):
        if index < 20:
            return torch.tensor(index)
        if TOUCH:
            return torch.tensor(len(list(self.words)))
        return torch.tensor(int(self.pages[::4096].sum()))

if __name__ == "__main__":
    options = dict(num_workers=1, persistent_workers=True, split_batches=False, multiprocessing_context="fork")
    with stoker.DataLoader(Growing(), batch_size=1, prefetch_factor=8, **options) as loader:
        for _ in loader:
            pass
        print(json.dumps(loader.stats()["memory"]["workers"]))
"""


@pytest.mark.parametrize("kind", ["copies", "shared-pages"])
def test_growth_is_what_a_worker_has_for_itself(kind: str, tmp_path: Path) -> None:
    """Workers copy pages of the parent, or read pages of a file that nobody else has touched. In a small process of its own:
    what a large parent writes meanwhile becomes its worker's alone, too.
    """
    script = tmp_path / "growing.py"
    script.write_text(GROWING)
    done = warm.run([str(script), kind], timeout=PATIENCE_S, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [worker] = json.loads(done.stdout)
    assert worker["worker"] == 0
    assert worker["pid"] > 0
    assert worker["pss_bytes"] > worker["private_bytes"] > 0
    if kind == "copies":
        assert worker["private_growth_bytes"] > 16 * MIB
    else:
        assert worker["private_growth_bytes"] < 8 * MIB


def test_figures_of_loaders_without_processes() -> None:
    for options in ({"num_workers": 0, "prefetch_factor": None, "multiprocessing_context": None},
                    {"executor": "thread", "multiprocessing_context": None}):  # fmt: skip
        loader = loader_of(torch.utils.data.TensorDataset(torch.arange(8)), **options)
        empty = loader.stats()["memory"]
        assert (empty["budget_bytes"], empty["arena_bytes"], empty["workers"]) == (0, 0, [])
        iterator = iter(loader)
        next(iterator)
        memory = loader.stats()["memory"]
        assert memory["workers"] == []
        assert (memory["budget_bytes"] > 0) == ("executor" in options)
        loader.trim()
        assert len(list(iterator)) == 7
        loader.close()


class Gated(Dataset[int]):
    """Row 1 waits until the test opens the gate."""

    def __init__(self) -> None:
        self.at_row = threading.Event()
        self.gate = threading.Event()
        self.trimmed = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 1:
            self.at_row.set()
            assert self.gate.wait(PATIENCE_S)
        return index

    def __stoker_trim__(self) -> None:
        self.trimmed += 1


def test_a_thread_that_still_makes_a_sample_is_not_trimmed_under_its_hands() -> None:
    dataset = Gated()
    with stoker.DataLoader(
        dataset, num_workers=1, executor="thread", persistent_workers=True, prefetch_factor=1
    ) as loader:
        iterator = iter(loader)
        next(iterator)
        assert dataset.at_row.wait(PATIENCE_S)
        del iterator
        loader.trim()
        assert dataset.trimmed == 0
        dataset.gate.set()
        assert len(list(loader)) == 8
        loader.trim()
        assert dataset.trimmed == 1
