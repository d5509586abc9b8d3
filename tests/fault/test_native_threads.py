"""Workers have one thread per native library, and start none to get there."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info
from torch.utils.data import Dataset

import stoker
from stoker._runtime.worker.process import process_setup


class Threads(Dataset[Any]):
    """Tells how many threads there are before and after a product that OpenBLAS would share among threads."""

    def __init__(self) -> None:
        self.matrix = np.ones((400, 400))

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[int, int, int, float]:
        before = len(os.listdir("/proc/self/task"))
        product = self.matrix @ self.matrix
        after = len(os.listdir("/proc/self/task"))
        most = max(each["num_threads"] for each in threadpool_info())
        return before, after, most, float(product[0, 0])


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_forked_worker_starts_no_thread_of_openblas() -> None:
    product = np.ones((400, 400)) @ np.ones(
        (400, 400)
    )  # OpenBLAS has its threads now, and loses them in the fork
    assert product[0, 0] == 400
    with stoker.DataLoader(Threads(), batch_size=2, num_workers=2, multiprocessing_context="fork") as loader:
        for before, after, most, value in loader:
            assert before.tolist() == after.tolist() == [1, 1]
            assert most.tolist() == [1, 1]
            assert value.tolist() == [400.0, 400.0]


def test_libraries_that_kept_their_threads_are_told_in_their_own_way() -> None:
    assert not process_setup._limit_forked_openblas(SimpleNamespace(internal_api="mkl"))
    here = [each for each in process_setup.native_pools(0).lib_controllers if each.internal_api == "openblas"]
    for library in here:  # in this process its threads run, as soon as it was used
        np.ones((400, 400)) @ np.ones((400, 400))
        library.set_num_threads(library.get_num_threads())
        assert not process_setup._limit_forked_openblas(library)
    process_setup.native_pools.cache_clear()
