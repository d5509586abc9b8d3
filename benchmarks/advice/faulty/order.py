"""Order and randomness: samplers, streams, generators, stale workers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from benchmarks.advice.cases import KEEP, Cases
from benchmarks.advice.faulty.images import Images
from benchmarks.advice.files import folder
from benchmarks.advice.healthy import FolderImages

ORDER = Cases()
_CHEAP = ("STK701",)
"""Rows that cost nothing: that workers do not help is true of them, too."""


class OwnGenerator(Images):
    """A generator of its own, the same in every forked worker."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        at = int(self.rng.integers(0, 32))
        return image[:, at : at + 64, :64].clone(), label


@ORDER("STK501")
def repeated_randomness() -> Any:
    return DataLoader(OwnGenerator(), 16, shuffle=True, **KEEP)


class Whole(IterableDataset[Any]):
    """A stream that does not ask which worker it is in."""

    def __iter__(self) -> Any:
        for number in range(4000):
            yield torch.full((8,), number)


@ORDER("STK502", also=_CHEAP)
def unsharded_stream() -> Any:
    return DataLoader(Whole(), 32, **KEEP)


@ORDER("STK503", also=("STK701",))
def dropped() -> Any:
    few = torch.utils.data.Subset(Images(), range(60))
    return DataLoader(few, 32, shuffle=True, drop_last=True, **KEEP)


class Staged(Images):
    """A curriculum: the trainer sets the epoch, and persistent workers do not see it."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called between epochs."""
        self.epoch = epoch

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image[:, self.epoch % 8 :][:, :64], label


@ORDER("STK504")
def stale_workers() -> Any:
    return DataLoader(Staged(), 16, shuffle=True, **KEEP)


class BadOrder(Sampler[int]):
    """Counts from one."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Any:
        return iter(range(1, self.rows + 1))


@ORDER("STK511", also=("STK404",))
def bad_sampler() -> Any:
    dataset = Images()
    return DataLoader(dataset, 16, sampler=BadOrder(len(dataset)), **KEEP)


class Wrong(Whole):
    """Says that it is longer than it is."""

    def __len__(self) -> int:
        return 9000

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        number, of = (info.id, info.num_workers) if info else (0, 1)
        for row in range(number, 400, of):
            yield torch.full((8,), row)


@ORDER("STK510", also=("STK503", "STK701"))
def wrong_length() -> Any:
    return DataLoader(Wrong(), 32, **KEEP)


class Broken(Wrong):
    """A generator that ends at the first bad record."""

    def __len__(self) -> int:
        raise TypeError

    def __iter__(self) -> Any:
        for row in range(400):
            if row == 5:
                raise ValueError("bad record 5")
            yield torch.full((8,), row)


@ORDER("STK509", also=("STK502", "STK404", "STK701"))
def broken_stream() -> Any:
    return DataLoader(Broken(), 32, **KEEP)


class Frozen(Images):
    """Caches augmented samples, so augmentations never change."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[int, Any] = {}

    def __getitem__(self, index: int) -> Any:
        if index not in self.cache:
            image, label = super().__getitem__(index)
            at = random.randrange(32)
            self.cache[index] = image[:, at : at + 64, :64].clone(), label
        return self.cache[index]


@ORDER("STK513", also=("STK607", "STK603"))
def frozen_randomness() -> Any:
    return DataLoader(Frozen(), 16, shuffle=True, **KEEP)


@ORDER("STK505")
def forgotten_set_epoch() -> Any:
    from torch.utils.data.distributed import DistributedSampler

    dataset = Images()
    return DataLoader(dataset, 16, sampler=DistributedSampler(dataset, num_replicas=2, rank=0), **KEEP)


class Entropy(Images):
    """A generator for each sample, seeded by nobody: no seed brings a run back."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        at = int(np.random.default_rng().integers(0, 32))
        return image[:, at : at + 64, :64].clone(), label


@ORDER("STK507")
def unseeded() -> Any:
    return DataLoader(Entropy(), 16, shuffle=True, **KEEP)


@ORDER("STK501", also=("STK108",))
def monai_with_torchs_loader() -> Any:
    from benchmarks.advice.libraries import volumes_of_monai

    return DataLoader(volumes_of_monai(), 4, shuffle=True, **KEEP)


class Albumented(FolderImages):
    """OpenCV and albumentations 2, as in their guide: its generator lies on the dataset, and forked workers copy it."""

    def __init__(self, root: Any) -> None:
        super().__init__(root)
        import albumentations as A

        self.steps = A.Compose(
            [A.HorizontalFlip(p=0.5), A.RandomCrop(64, 64), A.RandomBrightnessContrast(p=0.3)]
        )

    def __getitem__(self, index: int) -> Any:
        image, target = super().__getitem__(index)
        return torch.from_numpy(self.steps(image=image.permute(1, 2, 0).numpy())["image"]).permute(
            2, 0, 1
        ).contiguous(), target


@ORDER("STK501")
def albumentations_images() -> Any:
    return DataLoader(Albumented(folder() / "pictures"), 16, shuffle=True, **KEEP)
