"""Datasets that end their own worker, and remember in files how often."""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from stoker.testing import pass_through


class Marks:
    """Marks on disk: whoever sets one first knows it, whatever becomes of the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def set(self, name: str) -> bool:
        """Set a mark; whether it is new."""
        try:
            os.close(os.open(f"{self.folder}/{name}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def count(self, prefix: str) -> int:
        """How many marks begin with this."""
        return sum(name.startswith(prefix) for name in os.listdir(self.folder))


def die(code: int | None) -> None:
    """End this process now: killed, or with an exit code."""
    if code is None:
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        os._exit(code)


class Deadly(Dataset[Any]):
    """Noisy rows; in a worker, each of ``deadly`` ends it ``times`` times before it is a row like any other."""

    def __init__(
        self, folder: Path, deadly: set[int], *, times: int = 1, code: int | None = None, rows: int = 200
    ) -> None:
        self.marks = Marks(folder)
        self.deadly = deadly
        self.times = times
        self.code = code
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> Any:
        if index in self.deadly and get_worker_info() is not None:
            for time in range(self.times):
                if self.marks.set(f"death-{index}-{time}"):
                    die(self.code)
        return {
            "row": torch.full((300,), float(index)),
            "index": index,
            "noise": (torch.rand(2), np.random.rand(2), random.random()),
        }


class DeadlyStream(IterableDataset[Any]):
    """Each worker's share of a range; each of ``deadly`` ends its worker once."""

    def __init__(self, folder: Path, deadly: set[int], count: int = 60) -> None:
        self.marks = Marks(folder)
        self.deadly = deadly
        self.count = count

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for value in range(first, self.count, step):
            if value in self.deadly and self.marks.set(f"death-{value}"):
                die(None)
            yield value


class Gated(Dataset[int]):
    """Rows from ``first`` on wait at a gate; row -1 computes for ever."""

    def __init__(self, gate: str, first: int) -> None:
        self.gate = gate
        self.first = first

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index >= self.first:
            pass_through(self.gate)
        while index < 0:
            pass
        return index


def _in_template() -> bool:
    """On a busy machine a template may be given up before it unpacks anything: a worker is then the first."""
    return Path("/proc/self/comm").read_text() == "stoker-template\n"


class Unpacked(Dataset[Any]):
    """Rows that tell who made them, who unpickled the dataset and how many this process has made; large enough for a template.

    ``trouble`` is what unpickling leads to, "once" only the first time. "settings" are of the process, and asked for by every row.
    """

    def __init__(self, folder: Path, trouble: str = "") -> None:
        self.marks = Marks(folder)
        self.trouble = trouble
        self.padding = bytes(1 << 20)
        self.unpacked_in = 0
        self.made = 0
        self.file: Any = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.unpacked_in = os.getpid()
        first = self.marks.set("first")
        self.marks.set(f"unpacked-{os.getpid()}")
        logging.getLogger("tests").warning("unpacked in %d", os.getpid())
        if self.trouble == "raise":
            raise ValueError("cannot be unpacked")
        if self.trouble == "settings":
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            os.chdir(self.marks.folder)
            sys.path.append("added")
        if self.trouble == "thread":
            threading.Thread(target=threading.Event().wait, name="reader").start()
        if self.trouble == "file":
            self.file = open(__file__)  # noqa: SIM115
        if self.trouble == "die once" and first:
            os._exit(3)
        if self.trouble == "hang once" and first and _in_template():
            signal.pause()

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        self.made += 1
        if self.trouble == "settings":
            assert (sys.path[-1], os.getcwd()) == ("added", self.marks.folder)
        return index, os.getpid(), self.unpacked_in, self.made
