"""What the cases load: map-style datasets and collate functions, importable under every start method.

Ready-made samples are built once and handed out again and again, so that the loader is what is measured and
not the making of samples. Everything is seeded: both sides of a case must produce the same batches, and
that is checked.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

PLENTY = 50_000_000
"""A length no round exhausts: steady cases stop by the clock, in the middle of an epoch."""


class ReadyMade(Dataset[Any]):
    """Hands out the same few samples in turn; fetching one costs an index and a modulo."""

    def __init__(self, samples: Sequence[Any], length: int = PLENTY) -> None:
        self.samples = samples
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.samples[index % len(self.samples)]


class Sleepy(Dataset[Any]):
    """Sleeps ``usual_s`` per sample, and ``slow_s`` for every ``slow_every``-th: it needs no core."""

    def __init__(self, length: int, usual_s: float, slow_s: float = 0.0, slow_every: int = 0) -> None:
        self.length = length
        self.usual_s = usual_s
        self.slow_s = slow_s
        self.slow_every = slow_every

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        slow = self.slow_every and index % self.slow_every == self.slow_every - 1
        time.sleep(self.slow_s if slow else self.usual_s)
        return torch.full((4,), float(index))


class Jpegs(Dataset[Any]):
    """Decodes one of a few JPEG files held in memory and resizes it, like a cached image folder."""

    def __init__(self, length: int = PLENTY, files: int = 8) -> None:
        self.length = length
        self.files = [picture(seed) for seed in range(files)]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        with Image.open(io.BytesIO(self.files[index % len(self.files)])) as image:
            small = image.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
        # A copy, because the array over Pillow's bytes is read-only and torch warns about such memory.
        pixels = torch.from_numpy(np.array(small)).permute(2, 0, 1)
        return pixels, index % 1000


class Paths(Dataset[Any]):
    """Reads one string of a list per sample, and says which process did."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[int, int]:
        return len(self.paths[index]), os.getpid()


class ArrayRows(Dataset[Any]):
    """Rows of one large numpy array; a row's tensor is a view of it."""

    def __init__(self, rows: int, row_bytes: int) -> None:
        # Random: neither the kernel nor a pickle can make it smaller than it is.
        self.array = np.random.default_rng(0).integers(0, 256, (rows, row_bytes), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(self.array[index]), os.getpid()


class Nothing(Dataset[Any]):
    """As long as another dataset and with samples like its own, but nothing is held: they are made from one sample."""

    def __init__(self, other: Any) -> None:
        self.length = len(other)
        self.row_bytes = other.array.shape[1] if isinstance(other, ArrayRows) else 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return torch.zeros(self.row_bytes, dtype=torch.uint8) if self.row_bytes else index, os.getpid()


class Labelled(Dataset[Any]):
    """(path, label) tuples in a list, as image folders have them."""

    def __init__(self, rows: list[tuple[str, int]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[int, int]:
        file_name, label = self.rows[index]
        return len(file_name), label


def picture(seed: int) -> bytes:
    """Return a 500x375 picture somewhat like a photo: smooth colour with a little noise."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC), dtype=np.int16)
    noisy = np.clip(smooth + rng.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(noisy).save(out, "JPEG", quality=90)
    return out.getvalue()


def images(shape: tuple[int, ...], dtype: torch.dtype, count: int = 8) -> list[torch.Tensor]:
    """Return ``count`` random tensors of ``shape``."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, 256, shape, generator=generator).to(dtype) for _ in range(count)]


def records(count: int = 8) -> list[dict[str, Any]]:
    """Return detection-like samples: an image, a string, a numpy array of boxes, scalars one level down."""
    rng = np.random.default_rng(0)
    return [
        {
            "image": image,
            "name": f"train/{i:08d}.jpg",
            "boxes": rng.random((6, 4), dtype=np.float32),
            "target": {"label": i, "score": i / 8, "flipped": i % 2 == 0},
        }
        for i, image in enumerate(images((3, 224, 224), torch.uint8, count))
    ]


def ragged_rows(count: int = 64) -> list[torch.Tensor]:
    """Return token rows of 16 to 512 int64 values."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(16, 513, (count,), generator=generator).tolist()
    return [torch.randint(1, 30_000, (length,), generator=generator) for length in lengths]


def pad_rows(rows: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Collate ragged rows into a padded block and its lengths, the way text pipelines do."""
    lengths = torch.tensor([len(row) for row in rows])
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), lengths


def separate_rows(rows: list[torch.Tensor]) -> list[torch.Tensor]:
    """Collate into one small tensor per sample.

    Cloned: handing out the ready-made samples themselves would let a transport recognise storages it knows.
    """
    return [row.clone() for row in rows]
