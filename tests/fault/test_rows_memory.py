"""Memory that climbs with every sample: what workers take for themselves of a dataset they inherited."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Dataset

import stoker

ARRAY_BYTES = 128 << 20
ROW_BYTES = 64 << 10
BATCH = 32


def own_bytes(kind: str) -> int:
    """What this process has for itself: by a fork, what it wrote to; of a file it maps, what became its own copy."""
    with open("/proc/self/smaps_rollup") as facts:
        return sum(int(line.split()[1]) << 10 for line in facts if line.startswith(kind))


class Rows(Dataset[Any]):
    """Reads a row of a large array; says now and then how much memory its process has for itself, which takes a while."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.array = np.ones((ARRAY_BYTES // ROW_BYTES, ROW_BYTES), np.uint8)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        own = own_bytes(self.kind) if index % BATCH == 0 else -1
        return os.getpid(), int(self.array[index].sum(dtype=np.int64)), own


@pytest.mark.parametrize(("method", "kind"), [("fork", "Private_Dirty:"), ("forkserver", "Anonymous:")])
def test_reading_an_array_makes_it_nobodys_own(method: str, kind: str) -> None:
    """Row 7: RAM climbs all epoch because reference counts are written into shared pages.

    Arrays have none inside: reading all of one costs no worker a copy of it, whether it was inherited or sent. For containers of
    Python objects that takes ``stoker.share``: test_shared_data.py.
    """
    loader = stoker.DataLoader(Rows(kind), batch_size=BATCH, num_workers=2, multiprocessing_context=method)
    seen: dict[int, list[int]] = {}
    for pids, sums, own in loader:
        assert sums.tolist() == [ROW_BYTES] * len(sums)
        assert int(own[0]) > 0
        seen.setdefault(int(pids[0]), []).append(int(own[0]))
    assert sum(len(sizes) for sizes in seen.values()) == len(loader)
    for sizes in seen.values():
        assert max(sizes) - sizes[0] < ARRAY_BYTES // 8
