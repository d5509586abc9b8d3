"""Datasets of the soak: ten shapes of rows, all with their index, and a script of how some of them misbehave."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from tests.fault.datasets import Marks, die
from tests.soak.workers.scenario import Scenario, stream_indices


class BadRow(Exception):
    """What a row in ``raises`` raises."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class Script:
    """Who misbehaves how. A calm script only raises: it is for what the disturbed run is compared with."""

    def __init__(self, scenario: Scenario, folder: Path, *, calm: bool) -> None:
        self.marks = Marks(folder)
        self.deaths = {} if calm else dict(scenario.deaths)
        self.slow = {} if calm else dict(scenario.slow)
        self.raises = scenario.raises
        self.nones = scenario.nones

    def perform(self, index: int) -> bool:
        """Called by every row before it is made, on the thread that makes it. False: the row is None."""
        if index in self.slow and self.marks.set(f"slow-{index}"):
            time.sleep(self.slow[index])
        how = self.deaths.get(index)
        # A worker that shares the parent's process never has deaths in its script; the parent itself must not follow it.
        if how is not None and get_worker_info() is not None and self.marks.set(f"{how}-{index}"):
            if how == "segv":
                os.kill(os.getpid(), signal.SIGSEGV)
            die(3 if how == "exit" else None)
        if index in self.raises:
            raise BadRow(index)
        return index not in self.nones


class Rows(Dataset[Any]):
    """Map-style rows of one kind."""

    def __init__(self, scenario: Scenario, script: Script) -> None:
        self.kind = scenario.kind
        self.rows = scenario.rows
        self.noisy = scenario.noisy
        self.script = script

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, Any] | None:
        return sample(self.kind, index, noisy=self.noisy) if self.script.perform(index) else None


class ManyRows(Rows):
    """Rows that are fetched a batch at a time."""

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any] | None]:
        return [self[index] for index in indices]


class Stream(IterableDataset[Any]):
    """Each worker's own rows. Its iterator outlives a row that raises, as a generator would not."""

    def __init__(self, scenario: Scenario, script: Script) -> None:
        self.kind = scenario.kind
        self.rows = scenario.rows
        self.noisy = scenario.noisy
        self.script = script

    def __iter__(self) -> Iterator[dict[str, Any] | None]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        return _Cursor(self, iter(stream_indices(self.kind, self.rows, worker, workers)))


class _Cursor(Iterator[dict[str, Any] | None]):
    def __init__(self, stream: Stream, indices: Iterator[int]) -> None:
        self._stream = stream
        self._indices = indices

    def __next__(self) -> dict[str, Any] | None:
        index = next(self._indices)
        stream = self._stream
        return sample(stream.kind, index, noisy=stream.noisy) if stream.script.perform(index) else None


def dataset_of(scenario: Scenario, folder: Path, *, calm: bool) -> tuple[Any, Script]:
    """The scenario's dataset and the script it follows."""
    script = Script(scenario, folder, calm=calm)
    if scenario.stream:
        return Stream(scenario, script), script
    return (ManyRows if scenario.kind == "many" else Rows)(scenario, script), script


def collate_ragged(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows of different lengths, end to end and as they are."""
    values = [each["value"] for each in samples]
    return {
        "index": [each["index"] for each in samples],
        "flat": torch.cat(values),
        "lengths": torch.tensor([len(value) for value in values]),
        "values": values,
        "noise": [each.get("noise") for each in samples],
    }


def sample(kind: str, index: int, *, noisy: bool) -> dict[str, Any]:
    """One row: its index, a value of its kind, and noise from the three global generators."""
    row: dict[str, Any] = {"index": index, "value": _value(kind, index)}
    if noisy:
        row["noise"] = (torch.rand(2), np.random.rand(2), random.random())
    return row


def _value(kind: str, index: int) -> Any:
    if kind == "nested":
        return {
            "pair": (torch.arange(5) + index, [index * 0.5, {"even": index % 2 == 0}]),
            "none": str(index),
        }
    if kind == "text":
        return [f"row {index} of the soak", bytes([index % 256]) * (index % 40)]
    if kind == "mixed":  # collates to another dtype as a whole than in parts
        return float(index) if index % 5 == 0 else index
    if kind == "large":
        return torch.full((3, 40, 40), float(index))
    if kind == "ragged":
        return torch.arange(index % 7 + 1) * index
    return torch.full((300,), float(index))
