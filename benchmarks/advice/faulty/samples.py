"""Samples and batches: shapes, types, None, missing files, exceptions, hangs and crashes."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.advice.cases import KEEP, Cases
from benchmarks.advice.faulty.images import Images
from benchmarks.advice.files import folder
from benchmarks.advice.healthy import Sentences

SAMPLES = Cases()
_CHEAP = ("STK701",)
"""Rows that cost nothing: that workers do not help is true of them, too."""


class OneRagged(Images):
    """Most pictures have one size, some another: nobody resizes them."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return (image[:, : 60 + index % 3 * 10]), label


@SAMPLES("STK401")
def ragged() -> Any:
    return DataLoader(OneRagged(), 16, shuffle=True, **KEEP)


@SAMPLES("STK401", also=_CHEAP)
def unpadded() -> Any:
    return DataLoader(Sentences(folder() / "texts.jsonl"), 32, shuffle=True, **KEEP)


class SometimesNone(Images):
    """Returns None where a picture could not be read."""

    def __getitem__(self, index: int) -> Any:
        return None if index % 6 == 5 else super().__getitem__(index)


@SAMPLES("STK402")
def none_samples() -> Any:
    return DataLoader(SometimesNone(), 16, shuffle=True, **KEEP)


class MixedLabels(Images):
    """A label is a number or a tensor."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image, (torch.tensor(label) if index % 2 else str(label))


@SAMPLES("STK403")
def mixed_types() -> Any:
    return DataLoader(MixedLabels(), 16, shuffle=True, **KEEP)


class Missing(Images):
    """Some files of the list are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = [
            (path + ".gone" if number % 7 == 3 else path, label)
            for number, (path, label) in enumerate(self.samples)
        ]

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        path, label = self.samples[index]
        return torch.from_numpy(np.array(Image.open(path))), label


@SAMPLES("STK404")
def missing_files() -> Any:
    return DataLoader(Missing(), 16, shuffle=True, **KEEP)


class Exhausted(Images):
    """Takes from an iterator that ends."""

    def __getitem__(self, index: int) -> Any:
        if index % 5 == 4:
            return next(iter([]))
        return super().__getitem__(index)


@SAMPLES("STK405")
def stop_iteration() -> Any:
    return DataLoader(Exhausted(), 16, shuffle=True, **KEEP)


def with_function(batch: Any) -> Any:
    """A batch that no pickle takes."""
    return {"rows": len(batch), "again": lambda: batch}


@SAMPLES("STK406")
def unsendable_batch() -> Any:
    return DataLoader(Images(), 16, shuffle=True, collate_fn=with_function, **KEEP)


class Views(Dataset[Any]):
    """A row of a large tensor, sent with all of it by a collate_fn that keeps lists."""

    def __init__(self) -> None:
        self.all = torch.randn(4000, 2000)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.all.clone()[index]


def as_list(batch: Any) -> Any:
    """No stacking."""
    return list(batch)


@SAMPLES("STK407", also=("STK604", "STK705", "STK408", "STK603", "STK701"))
def view_bloat() -> Any:
    return DataLoader(Views(), 4, shuffle=True, collate_fn=as_list, **KEEP)


class ManyParts(Images):
    """A dict of two hundred small tensors."""

    def __getitem__(self, index: int) -> Any:
        return {f"feature{number}": torch.tensor([float(number)]) for number in range(200)}


@SAMPLES("STK408", also=_CHEAP)
def tiny_tensors() -> Any:
    return DataLoader(ManyParts(), 16, shuffle=True, **KEEP)


class Hanging(Images):
    """One sample waits for ever, on a server that does not answer."""

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            time.sleep(10_000)
        return super().__getitem__(index)


@SAMPLES("STK411")
def hanging() -> Any:
    return DataLoader(Hanging(), 16, **KEEP)


class Deadly(Images):
    """One sample makes a native library crash."""

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().__getitem__(index)


@SAMPLES("STK412")
def deadly() -> Any:
    return DataLoader(Deadly(), 16, **KEEP)


class Raising(Images):
    """Raises an exception of a class that no other process can import."""

    def __getitem__(self, index: int) -> Any:
        class Truncated(Exception):
            pass

        if index % 6 == 2:
            raise Truncated(f"picture {index}")
        return super().__getitem__(index)


@SAMPLES("STK410", also=("STK404",))
def bad_exception() -> Any:
    return DataLoader(Raising(), 16, shuffle=True, **KEEP)
