"""Datasets whose samples tell how, where and how often they were made. Importable, for workers that do not fork."""

from __future__ import annotations

import os
import random
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

import stoker
from stoker._runtime.scheduler.row_ranges import row_ranges, share_ranges

_ENTRY = struct.Struct("<q")


class Jitter:
    """A transform with generators of its own."""

    def __init__(self) -> None:
        self.python = random.Random()
        self.torch = torch.Generator()

    def __call__(self, number: float) -> torch.Tensor:
        return torch.rand((), generator=self.torch) + number * self.python.random()


class Mixture(Dataset[Any]):
    """One of everything that default collation knows, and draws from a generator keyed to the sample.

    ``noise`` adds draws from the three global generators and from some that are stored on the dataset.
    """

    def __init__(self, rows: int, *, noise: bool) -> None:
        self.rows = rows
        self.noise = noise
        if noise:
            self.stored: list[Any] = [np.random.default_rng(), np.random.RandomState()]
            self.transform = Jitter()

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample: dict[str, Any] = {
            "image": torch.full((3, 8, 8), index, dtype=torch.uint8),
            "half": torch.tensor([index, -index], dtype=torch.bfloat16),
            "boxes": np.arange(6, dtype=np.float32).reshape(2, 3) * index,
            "label": index,
            "weight": index / 3,
            "flag": index % 2 == 0,
            "name": f"sample {index}",
            "raw": bytes([index % 256]),
            "deep": {"pair": (torch.tensor(index), [np.int16(index % 99)])},
            "keyed": (stoker.generator().random(2), torch.rand(2, generator=stoker.generator("torch"))),
        }
        if self.noise:
            sample["noise"] = (torch.randn(5), np.random.rand(3), random.random(), random.gauss(0, 1))
            sample["stored"] = ([each.normal() for each in self.stored], self.transform(index))
        return sample


class Tally:
    """Counts fetches of any number of processes: each appends its index to a file, in one write."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def add(self, index: int) -> None:
        """Called by the dataset."""
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, _ENTRY.pack(index))
        os.close(fd)

    def take(self) -> Counter[int]:
        """How often each index was fetched since the last call."""
        entries = Path(self.path).read_bytes()
        os.unlink(self.path)
        return Counter(index for (index,) in _ENTRY.iter_unpack(entries))


class Shared(Dataset[Any]):
    """Rows of a case, made so that the two parts of the first batch are in the hands of two workers.

    Its first row of part 0 and the first row of part 1 meet at a FIFO: one opens it for writing, the other for reading, and
    neither returns before the other has come.
    """

    def __init__(self, case: Callable[[int], Any], rows: int, batch: int, folder: Path) -> None:
        self.case = case
        self.rows = rows
        self.tally = Tally(folder / "fetched")
        self._meeting = str(folder / "meeting")
        (_, _), (self._second, _) = share_ranges(row_ranges(batch), 2)

    def arrange(self) -> None:
        """Prepare one meeting. Called in the parent before an epoch that splits its first batch."""
        os.mkfifo(self._meeting)

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> Any:
        self.tally.add(index)
        if get_worker_info() is not None:
            if index == 0:
                os.close(os.open(self._meeting, os.O_WRONLY))
            elif index == self._second:
                os.close(os.open(self._meeting, os.O_RDONLY))
        return self.case(index)
