"""Memory, speed and threads."""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.advice.cases import KEEP, Cases
from benchmarks.advice.faulty.images import Images

COST = Cases()


class PerWorkerCache(Images):
    """Decodes each picture once, in each worker."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = self.samples * 200
        self.cache: dict[int, Any] = {}

    def __getitem__(self, index: int) -> Any:
        if index not in self.cache:
            self.cache[index] = super().__getitem__(index)
        return self.cache[index]


@COST("STK607", also=("STK603",))
def worker_cache() -> Any:
    return DataLoader(PerWorkerCache(), 16, shuffle=True, **KEEP)


class LruCached(Images):
    """The same through functools."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = self.samples * 200
        self.read = functools.lru_cache(maxsize=None)(super().__getitem__)

    def __getitem__(self, index: int) -> Any:
        return self.read(index)


@COST("STK607", also=("STK603",))
def lru_cache() -> Any:
    return DataLoader(LruCached(), 16, shuffle=True, **KEEP)


class Tuples(Dataset[Any]):
    """400,000 (path, label) tuples in a list."""

    def __init__(self) -> None:
        self.samples = [
            (f"/data/train/class{number % 1000}/{number:08d}.jpg", number % 1000) for number in range(400_000)
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        return len(path), label


@COST("STK601", also=("STK701", "STK702"))
def path_tuples() -> Any:
    return DataLoader(Tuples(), 64, shuffle=True, num_workers=4, persistent_workers=True)


class Leaking(Images):
    """Keeps 4 MB of every sample."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = self.samples * 2000
        self.kept: list[Any] = []

    def __getitem__(self, index: int) -> Any:
        self.kept.append(np.ones(500_000))
        return super().__getitem__(index)


@COST("STK603", also=("STK607", "STK705"))
def leaking() -> Any:
    return DataLoader(Leaking(), 16, shuffle=True, **KEEP)


class Huge(Dataset[Any]):
    """Samples of 64 MB: a window of batches fills the memory."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(16, 1024, 1024)


@COST("STK604", also=("STK701", "STK603", "STK705"))
def full_window() -> Any:
    return DataLoader(Huge(), 8, num_workers=2, prefetch_factor=16, persistent_workers=True)


class LongOrder(Dataset[Any]):
    """A hundred million rows."""

    def __len__(self) -> int:
        return 100_000_000

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.0005)
        return index


@COST("STK605")
def big_permutation() -> Any:
    return DataLoader(LongOrder(), 64, shuffle=True, **KEEP)


class Cheap(Dataset[Any]):
    """Ready-made rows."""

    def __init__(self, rows: int = 4000) -> None:
        self.rows = torch.randn(rows, 8)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


@COST("STK701")
def needless_workers() -> Any:
    return DataLoader(Cheap(), 16, shuffle=True, num_workers=4, persistent_workers=True)


class Counting(Dataset[Any]):
    """Computes in Python."""

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> int:
        total = 0
        for number in range(40_000):
            total += number & index
        return total


@COST("STK702", also=("STK705",))
def too_many_workers() -> Any:
    return DataLoader(Counting(), 16, shuffle=True, num_workers=24, persistent_workers=True)


@COST("STK705", also=("STK702",))
def costly_samples() -> Any:
    return DataLoader(Costly(), 16, shuffle=True, **KEEP)


class Costly(Counting):
    """60 ms a sample."""

    def __getitem__(self, index: int) -> int:
        return sum(super(Costly, self).__getitem__(index) for _ in range(30))


@COST("STK706", also=("STK702",))
def cold_epochs() -> Any:
    few = torch.utils.data.Subset(Images(), range(64))
    return DataLoader(few, 16, shuffle=True, num_workers=4)


class Stragglers(Dataset[Any]):
    """Every sixth sample waits half a second for a slow disk."""

    def __len__(self) -> int:
        return 3000

    def __getitem__(self, index: int) -> int:
        time.sleep(0.4 if index % 25 == 7 else 0.001)
        return index


@COST("STK707", also=("STK705",))
def stragglers() -> Any:
    return DataLoader(Stragglers(), 8, **KEEP)


class FloatImages(Images):
    """uint8 pixels made float in the worker, four times as many bytes."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        big = torch.nn.functional.interpolate(image[None].float(), (512, 512))[0]
        return big.round().clamp(0, 255) / 255, label


@COST("STK710", also=("STK703", "STK705", "STK307"))
def float_images() -> Any:
    return DataLoader(FloatImages(), 16, shuffle=True, pin_memory=True, **KEEP)


class Threads(Dataset[Any]):
    """OpenCV with all its threads in every worker."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> Any:
        import cv2

        image = np.full((1500, 1500, 3), index % 255, np.uint8)
        return torch.from_numpy(cv2.resize(cv2.GaussianBlur(image, (31, 31), 0), (64, 64)))


@COST("STK307", also=("STK705",))
def oversubscribed() -> Any:
    return DataLoader(Threads(), 8, shuffle=True, num_workers=4, persistent_workers=True)
