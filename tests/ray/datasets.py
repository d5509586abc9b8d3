"""Datasets that Ray's actors make samples of. Their values depend on the seed, and not on who makes them."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class Noisy(Dataset[Any]):
    """Rows with noise from the three global generators. Each takes ``row_s`` seconds in a worker.

    A worker that makes one leaves a file with its pid in ``folder``: all nodes of the tests share this machine's disk.
    """

    def __init__(self, rows: int, row_s: float = 0.0, folder: str | None = None, payload: int = 4) -> None:
        self.rows = rows
        self.row_s = row_s
        self.folder = folder
        self.payload = payload

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        if get_worker_info() is not None:
            time.sleep(self.row_s)
            if self.folder is not None:
                Path(self.folder, str(os.getpid())).touch()
        return {
            "index": index,
            "torch": torch.rand(self.payload),
            "numpy": np.random.rand(2),
            "python": random.random(),
        }


class Stream(IterableDataset[Any]):
    """Each worker's share of the numbers."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(worker, self.rows, workers))


def workers_seen(folder: str) -> list[int]:
    """The pids of living processes that made a row."""
    return [int(name) for name in os.listdir(folder) if Path("/proc", name).exists()]
