"""How the dataset reaches its workers: what cannot be pickled, is held open, or takes long to send."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
import time
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.advice.cases import KEEP, Cases
from benchmarks.advice.faulty.images import Images
from benchmarks.advice.files import folder
from benchmarks.advice.healthy import CsvImages, ToTensor

TRAVEL = Cases()
_CHEAP = ("STK701",)
"""Rows that cost nothing: that workers do not help is true of them, too."""


@TRAVEL("STK102")
def lambda_under_spawn() -> Any:
    dataset = CsvImages(folder(), lambda image: torch.from_numpy(np.array(image)))
    return DataLoader(dataset, 16, shuffle=True, multiprocessing_context="spawn", **KEEP)


@TRAVEL("STK101")
def generator_under_spawn() -> Any:
    dataset = Images()
    dataset.stream = (number for number in range(10))  # type: ignore[attr-defined]
    return DataLoader(dataset, 16, shuffle=True, multiprocessing_context="spawn", **KEEP)


class EagerHandle(Dataset[Any]):
    """Opens its file in __init__, and seeks in it in every worker."""

    def __init__(self) -> None:
        self.file = open(folder() / "train.bin", "rb")  # noqa: SIM115

    def __len__(self) -> int:
        return 3000

    def __getitem__(self, index: int) -> Any:
        self.file.seek(index * 256)
        return torch.frombuffer(bytearray(self.file.read(256)), dtype=torch.uint8)


@TRAVEL("STK103", also=_CHEAP)
def open_handle() -> Any:
    return DataLoader(EagerHandle(), 64, shuffle=True, **KEEP)


class Locked(Images):
    """A thread that refreshes something, and its lock."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=time.sleep, args=(600,), daemon=True)
        self.thread.start()


@TRAVEL("STK104", also=("STK303",))
def held_thread() -> Any:
    return DataLoader(Locked(), 16, shuffle=True, **KEEP)


class ManyTensors(Dataset[Any]):
    """A tensor per row, sent to spawned workers."""

    def __init__(self) -> None:
        self.rows = [torch.randn(16) for _ in range(60_000)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


@TRAVEL("STK105", also=("STK701", "STK601", "STK106"))
def many_tensors() -> Any:
    return DataLoader(ManyTensors(), 64, shuffle=True, multiprocessing_context="spawn", **KEEP)


class Heavy(Dataset[Any]):
    """An array of 400 MB in memory, pickled for each spawned worker."""

    def __init__(self) -> None:
        self.rows = np.ones((100_000, 1000), np.float32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


@TRAVEL("STK106", also=(*_CHEAP, "STK108"))
def slow_travel() -> Any:
    return DataLoader(Heavy(), 64, shuffle=True, multiprocessing_context="spawn", **KEEP)


class Weighted(Images):
    """Keeps a parameter on the dataset."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3, 1, 1))

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image * self.scale, label


@TRAVEL("STK107", also=("STK710", "STK406"))
def gradient() -> Any:
    return DataLoader(Weighted(), 16, shuffle=True, **KEEP)


class EagerPictures(Dataset[Any]):
    """Decodes everything in __init__."""

    def __init__(self) -> None:
        inner = CsvImages(folder(), ToTensor())
        self.rows = [inner[at % len(inner)] for at in range(14_000)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


class EagerFiles(Dataset[Any]):
    """Opens every picture in __init__, several times as many as there are."""

    def __init__(self) -> None:
        from PIL import Image

        paths = sorted((folder() / "pictures").rglob("*.jpg")) * 24
        self.images = [np.array(Image.open(path).resize((160, 160))) for path in paths]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(self.images[index])


@TRAVEL("STK108", also=("STK701", "STK601"))
def eager_files() -> Any:
    return DataLoader(EagerFiles(), 16, shuffle=True, **KEEP)


@TRAVEL("STK108", also=("STK701", "STK601"))
def eager_data() -> Any:
    return DataLoader(EagerPictures(), 16, shuffle=True, **KEEP)


@TRAVEL("STK103")
def open_pipe() -> Any:
    dataset = Images()
    dataset.ends = multiprocessing.Pipe()  # type: ignore[attr-defined]
    return DataLoader(dataset, 16, shuffle=True, **KEEP)


class Database(Dataset[Any]):
    """Rows of a database whose connection was made in __init__."""

    def __init__(self) -> None:
        self.base = sqlite3.connect(folder() / "rows.db", check_same_thread=False)
        self.base.execute("create table if not exists rows (number integer)")
        if not self.base.execute("select count(*) from rows").fetchone()[0]:
            self.base.executemany("insert into rows values (?)", [(number,) for number in range(2000)])
            self.base.commit()

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> Any:
        return self.base.execute("select number from rows where rowid = ?", (index + 1,)).fetchone()[0]


@TRAVEL("STK103", also=_CHEAP)
def open_database() -> Any:
    return DataLoader(Database(), 64, shuffle=True, **KEEP)
