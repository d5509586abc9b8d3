"""``prefetch_epochs`` where epochs are tiny, fail, lose workers or are dropped at their edge."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset

from stoker import DataLoader

SIZE = 11

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


class Rows(Dataset[int]):
    """``fails`` raise, ``kills`` end their first reader."""

    def __init__(
        self, size: int = SIZE, fails: tuple[int, ...] = (), kills: dict[int, Path] | None = None
    ) -> None:
        self.size = size
        self.fails = fails
        self.kills = kills or {}

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if index in self.fails:
            raise KeyError(index)
        if index in self.kills and not self.kills[index].exists():
            self.kills[index].touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index


def prefetching(dataset: Dataset[int], **arguments: Any) -> Any:
    arguments = {"batch_size": 4, "num_workers": 2, "executor": "thread", **arguments}
    return DataLoader(dataset, persistent_workers=True, prefetch_epochs=True, **arguments)


def rows(loader: Any) -> list[int]:
    return sorted(row for batch in loader for row in batch.tolist())


@pytest.mark.parametrize("size", [0, 1, 4, 5])
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("drop_last", [False, True])
def test_epochs_shorter_than_the_window(size: int, in_order: bool, drop_last: bool) -> None:
    with prefetching(Rows(size), prefetch_factor=16, in_order=in_order, drop_last=drop_last) as loader:
        for _ in range(5):
            assert len(rows(loader)) == (size // 4 * 4 if drop_last else size)
            assert loader.state_dict()["finished"]


def test_errors_at_the_edge_belong_to_their_epoch() -> None:
    with prefetching(Rows(fails=(0, SIZE - 1))) as loader:
        for _ in range(3):
            iterator = iter(loader)
            outcomes: list[int] = []
            while len(outcomes) < 10:
                try:
                    outcomes.append(len(next(iterator)))
                except KeyError:
                    outcomes.append(-1)
                except StopIteration:
                    break
            assert outcomes == [-1, 4, -1]


@pytest.mark.parametrize(("mode", "count"), [("skip", SIZE - 2), ("replace", SIZE)])
def test_bad_samples_at_the_edge(mode: str, count: int) -> None:
    with prefetching(Rows(fails=(0, SIZE - 1)), on_bad_sample=mode) as loader:
        assert [len(rows(loader)) for _ in range(3)] == [count] * 3
        assert loader.stats()["batches"] == 9


def test_workers_that_die_at_the_edge_are_replaced(tmp_path: Path) -> None:
    kills = {index: tmp_path / str(index) for index in (0, SIZE - 1)}
    with prefetching(Rows(kills=kills), executor=None, multiprocessing_context="fork") as loader:
        for _ in range(3):
            assert rows(loader) == list(range(SIZE))


def test_a_death_at_the_edge_without_restarts_costs_its_epoch_only(tmp_path: Path) -> None:
    kills = {SIZE - 1: tmp_path / "killed"}
    with prefetching(Rows(kills=kills), executor=None, multiprocessing_context="fork", restarts=0) as loader:
        with pytest.raises(RuntimeError, match="killed by signal"):
            rows(loader)
        assert [rows(loader) for _ in range(2)] == [list(range(SIZE))] * 2


def test_nothing_is_left_for_the_garbage_collector() -> None:
    """A loader with a parked epoch, one in the middle of its epoch, and an iterator that outlives its loader."""
    gc.collect()
    gc.disable()
    try:
        loader = prefetching(Rows())
        rows(loader)
        workers = [loader._iterator._workers]
        del loader
        loader = prefetching(Rows())
        iterator = iter(loader)
        next(iterator)
        workers.append(loader._iterator._workers)
        del loader
        assert len(rows(iterator)) == SIZE - 4
        del iterator
        for each in workers:
            for worker in each:
                worker.join(10)
                assert not worker.is_alive()
    finally:
        gc.enable()


def test_prefetching_can_be_turned_off_while_an_epoch_is_open() -> None:
    with prefetching(Rows()) as loader:
        rows(loader)
        loader.prefetch_epochs = False
        assert [rows(loader) for _ in range(2)] == [list(range(SIZE))] * 2
        assert loader._prefetched is None
