"""Healthy loaders of iterable datasets, sharded by worker as they should be."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    get_worker_info,
)

from benchmarks.advice.cases import KEEP, Cases
from benchmarks.advice.files import folder

STREAMS = Cases()


class Lines(IterableDataset[Any]):
    """A file of lines, shared out among the workers by line number."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __iter__(self) -> Any:
        info = get_worker_info()
        number, of = (info.id, info.num_workers) if info else (0, 1)
        with open(self.path) as file:
            for at, line in enumerate(file):
                if at % of == number:
                    row = json.loads(line)
                    yield torch.tensor([len(word) for word in row["text"].split()][:4]), row["label"]


@STREAMS(also=("STK701",))
def lines() -> Any:
    return DataLoader(Lines(folder() / "texts.jsonl"), 32, **KEEP)


class Shards(IterableDataset[Any]):
    """Tar files, each read by one worker, with a small shuffle buffer."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __iter__(self) -> Any:
        import io
        import tarfile

        from PIL import Image

        info = get_worker_info()
        mine = self.paths[info.id :: info.num_workers] if info else self.paths
        buffer: list[Any] = []
        for path in mine:
            with tarfile.open(path) as tar:
                for entry in tar:
                    if not entry.name.endswith(".jpg"):
                        continue
                    data = tar.extractfile(entry)
                    assert data is not None
                    image = Image.open(io.BytesIO(data.read())).resize((64, 64))
                    buffer.append(torch.from_numpy(np.array(image)).permute(2, 0, 1))
                    if len(buffer) > 16:
                        yield buffer.pop(random.randrange(len(buffer)))
        yield from buffer


@STREAMS()
def shards() -> Any:
    return DataLoader(Shards(sorted(folder().glob("shard-*.tar"))), 8, **KEEP)
