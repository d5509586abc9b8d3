"""``python -m benchmarks.advice.tuning [--quick] [--only NAME,…]``: ``benchmarks.tuning`` on 12 workloads that are new to it.

Their datasets are those of ``benchmarks.advice``, of libraries among them. Options and figures are the same.
"""

from __future__ import annotations

import fcntl
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks import tuning
from benchmarks.advice import files
from benchmarks.tuning import Workload
from benchmarks.tuning_reference import compute_grid, waiting_grid

_LENGTH = 1 << 16


class Repeated(Dataset[Any]):
    """A dataset again and again, so that an epoch does not end while it is measured."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.rows = inner, len(inner)

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> Any:
        return self.inner[index % self.rows]


class Remote(Dataset[Any]):
    """Objects of a store: 2 ms and a long tail, by index, so that all settings wait for the same."""

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> int:
        time.sleep(0.002 + random.Random(index).expovariate(1 / 0.003))
        return index


class Locked(Dataset[Any]):
    """Reads of 1 ms behind one lock of the whole machine."""

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> int:
        with open(files.folder() / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(0.001)
        return index


class Frames(Dataset[Any]):
    """Frames of a file that is mapped: 3 x 256 x 256 bytes, copied."""

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> Any:
        tokens = np.memmap(files.folder() / "train.bin", np.uint8, "r")
        size = 3 * 256 * 256
        at = index * 4099 % (len(tokens) - size)
        return torch.from_numpy(np.array(tokens[at : at + size])).view(3, 256, 256)


def pictures() -> Any:
    """JPEGs of a table, augmented."""
    from benchmarks.advice.healthy import Augment, CsvImages

    return DataLoader(Repeated(CsvImages(files.folder(), Augment())), batch_size=16, shuffle=True)


def boxes() -> Any:
    """Pictures with boxes, kept apart."""
    from benchmarks.advice.healthy import Detection, detection_collate

    return DataLoader(
        Repeated(Detection(files.folder())), 8, shuffle=True, collate_fn=detection_collate, num_workers=2
    )


def blocks() -> Any:
    """Blocks of a mapped file of tokens."""
    from benchmarks.advice.healthy import Tokens

    return DataLoader(Repeated(Tokens(files.folder() / "train.bin", 128)), 64, shuffle=True, num_workers=2)


def texts() -> Any:
    """Texts, padded."""
    from benchmarks.advice.healthy import Sentences, pad

    return DataLoader(Repeated(Sentences(files.folder() / "texts.jsonl")), 64, shuffle=True, collate_fn=pad)


def spectra() -> Any:
    """A second of sound, and its spectrum."""
    from benchmarks.advice.healthy import Sounds

    return DataLoader(Repeated(Sounds(files.folder())), 16, shuffle=True)


def volumes() -> Any:
    """Volumes of compressed files."""
    from benchmarks.advice.healthy import Volumes

    return DataLoader(Repeated(Volumes(files.folder())), 8, shuffle=True)


def arrow() -> Any:
    """Rows of an Arrow table, by Hugging Face ``datasets``."""
    from benchmarks.advice.libraries import hugging_face_rows

    return DataLoader(Repeated(hugging_face_rows().dataset), 32, shuffle=True)


def monai() -> Any:
    """Volumes by MONAI's transforms."""
    from benchmarks.advice.libraries import volumes_of_monai

    return DataLoader(Repeated(volumes_of_monai()), 8, shuffle=True, num_workers=4)


def store() -> Any:
    """Objects of a store with a long tail."""
    return DataLoader(Remote(), 16, shuffle=True, num_workers=2)


def lock() -> Any:
    """A lock: no worker helps beyond the first."""
    return DataLoader(Locked(), 8, shuffle=True, num_workers=4)


def frames() -> Any:
    """Large rows that are only copied."""
    return DataLoader(Frames(), 32, shuffle=True, num_workers=2)


def steps() -> Any:
    """Texts behind a step of 40 ms: nothing is to be changed."""
    from benchmarks.advice.healthy import Sentences, pad
    from stoker import DataLoader as Ours

    return Ours(
        Repeated(Sentences(files.folder() / "texts.jsonl")), 64, shuffle=True, collate_fn=pad, num_workers=2
    )


def _of_here(name: str, grid: Any, **more: Any) -> Workload:
    return Workload(name, grid, module="benchmarks.advice.tuning", **more)


SUITE = (
    _of_here("pictures", compute_grid),
    _of_here("boxes", compute_grid),
    _of_here("blocks", compute_grid),
    _of_here("texts", compute_grid),
    _of_here("spectra", compute_grid),
    _of_here("volumes", compute_grid),
    _of_here("arrow", compute_grid),
    _of_here("monai", compute_grid),
    _of_here("store", waiting_grid, step_s=0.010),
    _of_here("lock", waiting_grid),
    _of_here("frames", compute_grid),
    _of_here("steps", compute_grid, step_s=0.040, idle=True),
)


def main() -> int:
    """Make the files, and run the suite."""
    with tempfile.TemporaryDirectory(prefix="stoker-advice-") as root:
        files.build(Path(root))
        os.environ["STOKER_PROFILES"] = "off"
        return tuning.main(suite=SUITE)


if __name__ == "__main__":
    sys.exit(main())
