"""Map-style datasets whose samples are random, and the death of a worker at a chosen sample.

Spawned workers import them from here.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

import stoker


class Deaths:
    """Kills the worker process that meets one of some indices for the first time; the marker file outlives it."""

    def __init__(self, folder: Path, indices: tuple[int, ...]) -> None:
        self._folder = str(folder)
        self._indices = frozenset(indices)
        self._home = os.getpid()

    def at(self, index: int) -> None:
        if index not in self._indices or os.getpid() == self._home:
            return
        try:
            os.close(os.open(f"{self._folder}/{index}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def happened(self) -> set[int]:
        """The indices whose readers died."""
        return {int(name) for name in os.listdir(self._folder)}


class Rows(Dataset[Any]):
    """What all have in common: a length, and where workers die."""

    def __init__(self, length: int, deaths: Deaths | None = None) -> None:
        self.length = length
        self.deaths = deaths

    def __len__(self) -> int:
        return self.length

    def read(self, index: int) -> int:
        if not 0 <= index < self.length:
            raise IndexError(index)
        if self.deaths is not None:
            self.deaths.at(index)
        return index


class Augmented(Rows):
    """Draws from all three global generators, an uneven number of times, into nested containers."""

    def __getitem__(self, index: int) -> Any:
        self.read(index)
        for _ in range(index % 3):
            random.random()
        return {
            "index": index,
            "python": random.random(),
            "numpy": np.random.rand(2),
            "deep": {"torch": torch.rand(3), "pair": (np.random.randint(1000), random.choice("abc"))},
            "text": f"row {index}",
        }


class Together(Rows):
    """Reads all rows of a batch in one call."""

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        noise = torch.rand(len(indices))
        return [(self.read(index), noise[row], np.random.rand()) for row, index in enumerate(indices)]


class Ragged(Rows):
    """Rows of random lengths; needs ``padded``."""

    def __getitem__(self, index: int) -> Any:
        return torch.rand(random.randint(1, 6)) + self.read(index)


def padded(rows: list[torch.Tensor]) -> dict[str, Any]:
    """Collates ragged rows, with a draw of its own."""
    return {
        "values": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True),
        "lengths": [len(row) for row in rows],
        "noise": torch.rand(1),
    }


class Keyed(Rows):
    """Draws only from ``stoker.generator()``: what it gives is the same under threads too."""

    def __getitem__(self, index: int) -> Any:
        self.read(index)
        numbers = stoker.generator()
        return {
            "index": index,
            "numpy": numbers.random(2),
            "again": stoker.generator().integers(1 << 40),
            "torch": torch.rand(3, generator=stoker.generator("torch")),
            "python": stoker.generator("python").random(),
        }


class Stored(Rows):
    """Keeps generators as attributes, one of them inside a transform."""

    def __init__(self, length: int, deaths: Deaths | None = None) -> None:
        super().__init__(length, deaths)
        self.numbers = np.random.default_rng()
        self.jitter = Jitter()

    def __getitem__(self, index: int) -> Any:
        return self.jitter(self.read(index)), self.numbers.random(2), torch.rand(1)


class Jitter:
    """A transform with a generator of its own."""

    def __init__(self) -> None:
        self.random = random.Random()

    def __call__(self, value: int) -> float:
        return value + self.random.random()


KINDS: dict[str, type[Rows]] = {
    "augmented": Augmented,
    "together": Together,
    "ragged": Ragged,
    "keyed": Keyed,
    "stored": Stored,
}
