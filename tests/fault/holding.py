"""Datasets and collations that are held up at one row, and how their rows are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stoker.testing import pass_through


class Rows:
    """A hundred rows; ``hold`` is called for row 53. Each computes a little, so that the status page names every row."""

    def __init__(self, hold: Callable[..., Any], *args: Any, work: int = 4000) -> None:
        self.hold = hold
        self.args = args
        self.work = work

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        sum(range(self.work))
        if index == 53:
            self.hold(*self.args)
        return index


def wait_at_the_gate(path: str) -> None:
    pass_through(path)


def nothing() -> None:
    return None


class WaitingCollation:
    """Waits for the batch that has row 53 in it."""

    def __init__(self, gate: str) -> None:
        self.gate = gate

    def __call__(self, samples: list[int]) -> torch.Tensor:
        if 53 in samples:
            wait_at_the_gate(self.gate)
        return torch.tensor(samples)


def rest_of(iterator: Any) -> list[int]:
    return [row for batch in iterator for row in batch.tolist()]
