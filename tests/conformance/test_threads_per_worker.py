"""Worker processes whose rows are fetched by several threads: the same batches, errors and messages as without."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, Subset, get_worker_info

import stoker
from stoker.errors import WorkerTimeout
from tests.compat.compare import assert_same

ROWS = 150
SEVEN = threading.Event()
EIGHT = threading.Event()


def in_a_hand() -> bool:
    return threading.current_thread().name.startswith("stoker-fetch")


class Noise(Dataset[Any]):
    """Rows with numbers of their own, that say whether ``threads`` fetch them."""

    def __init__(self, threads: bool) -> None:
        self.threads = threads

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        assert in_a_hand() is self.threads
        info: Any = get_worker_info()
        assert (info is not None and len(info.dataset) > 0) is self.threads
        return {"index": index, "noise": torch.rand(300, generator=stoker.generator("torch"))}


class Trouble(Noise):
    """Row 7 raises, kills, or does not end. One that kills does so while row 8 is in the making, if threads fetch them.

    Read in order: then another thread takes row 8 while row 7 waits. In any other order, all rows after row 7 may be done before
    it has begun, and it would wait for ever.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(True)
        self.kind = kind

    def __getitem__(self, index: int) -> Any:
        if index != 7:
            if self.kind == "kill" and index == 8 and in_a_hand():
                SEVEN.wait()
                EIGHT.set()
                threading.Event().wait()
            return index
        if self.kind == "kill":
            SEVEN.set()
            if in_a_hand():
                EIGHT.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "hang":
            threading.Event().wait()
        raise ValueError("seven")


def loader_of(dataset: Any, **arguments: Any) -> stoker.DataLoader[Any]:
    given = {"batch_size": 50, "shuffle": True, "num_workers": 2, "threads_per_worker": 4, **arguments}
    return stoker.DataLoader(dataset, generator=torch.Generator().manual_seed(5), **given)


def test_batches_are_the_same_whoever_fetches_their_rows() -> None:
    with loader_of(Noise(False), num_workers=0) as loader:  # an argument that is not used without workers
        expected = [list(loader) for _ in range(2)]
    for split in (False, True):
        with loader_of(Noise(True), split_batches=split, persistent_workers=True) as loader:
            assert_same(expected, [list(loader) for _ in range(2)])
            assert loader.stats()["record"]["loaders"][0]["options"]["threads_per_worker"]["value"] == 4
    with loader_of(Subset(Noise(True), range(ROWS)), rng="sample", executor="process") as loader:
        found = list(loader)
    with loader_of(Subset(Noise(False), range(ROWS)), rng="sample", num_workers=0) as loader:
        assert_same(list(loader), found)


def test_an_error_names_its_row() -> None:
    with loader_of(Trouble("raise")) as loader, pytest.raises(ValueError, match="seven") as caught:
        list(loader)
    assert "dataset index 7" in "".join([*caught.value.__notes__, str(caught.value)])


def test_a_row_that_kills_is_found_and_left_out() -> None:
    with loader_of(Trouble("kill"), shuffle=False, on_bad_sample="skip", restarts=0) as loader:
        indices = torch.cat(list(loader)).tolist()
        assert sorted(indices) == sorted(set(range(ROWS)) - {7})
        assert list(loader.stats()["bad_samples"]["indices"]) == [7]


def test_of_a_worker_that_hangs_the_threads_are_shown() -> None:
    with loader_of(Trouble("hang"), timeout=0.7) as loader, pytest.raises(WorkerTimeout) as caught:
        list(loader)
    assert "dataset index 7 (row " in str(caught.value)
    assert "(1 of its threads)" in str(caught.value)
    assert "in __getitem__" in str(caught.value)
