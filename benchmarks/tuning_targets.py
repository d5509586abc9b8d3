"""What ``benchmarks.tuning`` tunes: loaders as users have them, each short of something else. Importable by name.

Batches take milliseconds, so that a block of half a second has enough of them. Loaders are torch's, which is what people come with;
the one that needs no tuning is ours.
"""

from __future__ import annotations

import os
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import stoker
from benchmarks.datasets import Sleepy, picture

_LENGTH = 1 << 16
_FILES = 64
_BUSY_S = 0.006


class JpegFiles(Dataset[Any]):
    """An image folder: reads a file, decodes it, resizes it."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(str(path) for path in folder.iterdir())

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        with Image.open(self.paths[index % len(self.paths)]) as image:
            small = image.convert("RGB").resize((128, 128), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.array(small)).permute(2, 0, 1), index % 1000


class Counting(Dataset[Any]):
    """Pure Python: holds the GIL."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> int:
        return count(self.rounds, index)


class Spectra(Dataset[Any]):
    """NumPy at work on arrays of a quarter of a megabyte: releases the GIL for most of it."""

    def __init__(self) -> None:
        self.signal = np.random.default_rng(0).normal(size=(4, 8192))

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        shifted = np.roll(self.signal, index % 4096, axis=1)
        spectrum = np.abs(np.fft.rfft(shifted, axis=1))
        return np.sort(spectrum, axis=1)[:, -256:].astype(np.float32)


class Mixed(Dataset[Any]):
    """Waits for a file, so to speak, and then decodes it."""

    def __init__(self, wait_s: float, rounds: int) -> None:
        self.wait_s, self.rounds = wait_s, rounds

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> int:
        time.sleep(self.wait_s)
        return count(self.rounds, index)


def count(rounds: int, index: int) -> int:
    """About 0.5 ms for 10 000 rounds."""
    total = 0
    for number in range(rounds):
        total += number & index
    return total


def sleep() -> Any:
    """Samples that are waited for: 16 of 5 ms."""
    return DataLoader(Sleepy(_LENGTH, 0.005), batch_size=16, shuffle=True)


def jpeg() -> Any:
    """8 JPEG files of 500 x 375."""
    return DataLoader(JpegFiles(_folder()), batch_size=8, shuffle=True)


def python() -> Any:
    """16 samples of half a millisecond in pure Python."""
    return DataLoader(Counting(10_000), batch_size=16, shuffle=True)


def numpy() -> Any:
    """16 samples of about a millisecond in NumPy."""
    return DataLoader(Spectra(), batch_size=16, shuffle=True)


def tensors() -> Any:
    """64 rows of 16 numbers, in memory."""
    return DataLoader(TensorDataset(torch.rand(_LENGTH, 16)), batch_size=64, shuffle=True)


def large() -> Any:
    """32 pictures of 3 x 160 x 160 floats, in memory: 9.8 MB."""
    return DataLoader(TensorDataset(torch.rand(256, 3, 160, 160)), batch_size=32, shuffle=True)


def mixed() -> Any:
    """8 samples that wait for 3 ms and compute for 0.5 ms."""
    return DataLoader(Mixed(0.003, 10_000), batch_size=8, shuffle=True)


def stragglers() -> Any:
    """8 samples of 1 ms, and every 40th takes 60."""
    return DataLoader(Sleepy(_LENGTH, 0.001, 0.060, 40), batch_size=8, shuffle=True, num_workers=1)


def parent() -> Any:
    """16 samples of half a millisecond in pure Python; the step needs a core, too."""
    return DataLoader(Counting(10_000), batch_size=16, shuffle=True)


def idle() -> Any:
    """A batch of 4 ms for a step of 30: two workers are more than enough."""
    return stoker.DataLoader(Counting(5_000), batch_size=16, shuffle=True, num_workers=2)


def busy_step(batch: Any) -> None:
    """A training step that computes on the CPU for 6 ms."""
    until_s = time.thread_time() + _BUSY_S
    while time.thread_time() < until_s:
        count(200, 3)


@cache
def _folder() -> Path:
    """Pictures, made once per process in a folder that others may have filled already."""
    folder = Path(tempfile.gettempdir()) / f"stoker-tuning-pictures-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in range(_FILES):
        path = folder / f"{number:03}.jpg"
        if not path.exists():
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_bytes(picture(number))
            partial.rename(path)
    for stray in folder.glob("*.[0-9]*"):
        stray.unlink(missing_ok=True)
    return folder
