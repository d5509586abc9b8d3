"""A stager stands between opening a batch and handing it over, with every executor: no slot is written while its copy goes on."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker._runtime.device.stager import FencedSources, Source
from stoker._runtime.engine import iterator

WIDTH = 5000  # 20 kB in float32: above what is copied out
BATCHES = 60
LATE = 3
"""Copies that are under way at most."""


class Wide(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((WIDTH,), float(index))


class LateCopy:
    """Reads its source as late as the rules allow: when it becomes the oldest of too many, or somebody waits for it."""

    def __init__(self, source: torch.Tensor, into: torch.Tensor) -> None:
        # A device knows an address. It keeps nothing alive, and does not notice that memory changes.
        self._numbers = torch.from_numpy(_unowned(source))
        self._into = into
        self.finished = False

    def run(self) -> None:
        if not self.finished:
            self._into.copy_(self._numbers)
            self.finished = True

    def done(self) -> bool:
        return self.finished

    def wait(self) -> None:
        self.run()


def _unowned(source: torch.Tensor) -> Any:
    floats = ctypes.POINTER(ctypes.c_float)
    return np.ctypeslib.as_array(ctypes.cast(source.data_ptr(), floats), shape=tuple(source.shape))


class Staged:
    def __init__(self, batch: torch.Tensor, fence: LateCopy | None = None) -> None:
        self.batch = batch
        self.fence = fence

    def ready(self) -> None:
        return None

    def take(self, sources: FencedSources) -> torch.Tensor:
        return self.batch


class LateStager:
    def __init__(self, ahead: int) -> None:
        self.ahead = ahead
        self.under_way: deque[LateCopy] = deque()

    to_device = True

    def hold_back(self, *, ready: bool) -> None:
        return None

    def close(self) -> None:
        return None

    def stage(self, source: Source) -> Staged:
        batch: torch.Tensor = source.opened()
        into = torch.full_like(batch, -1.0)
        copy = LateCopy(batch, into)
        self.under_way.append(copy)
        if len(self.under_way) > LATE:
            self.under_way.popleft().run()
        return Staged(into, copy)


@pytest.fixture(params=[0, 1, 3])
def stagers(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[LateStager]:
    """The stagers that loaders get, which stage none, one or three batches ahead."""
    made: list[LateStager] = []

    def stager_for(*_: Any) -> LateStager:
        made.append(LateStager(request.param))
        return made[-1]

    monkeypatch.setattr(iterator, "stager_for", stager_for)
    return made


@pytest.mark.parametrize("executor", ["process", "thread", "inline"])
def test_copies_read_what_the_worker_wrote(executor: Any, stagers: list[LateStager]) -> None:
    workers = 0 if executor == "inline" else 2
    with stoker.DataLoader(
        Wide(), batch_size=1, num_workers=workers, executor=executor, persistent_workers=workers > 0
    ) as loader:
        got = [batch for _ in range(2) for batch in loader]
    assert [batch.unique().tolist() for batch in got] == [[float(i)] for i in range(BATCHES)] * 2
    assert len(stagers) == 2


def test_an_iterator_that_is_left_keeps_its_copies_sources(stagers: list[LateStager]) -> None:
    """The pool goes on with the next epoch, in the same slots."""
    with stoker.DataLoader(
        Wide(), batch_size=1, num_workers=2, executor="process", persistent_workers=True
    ) as loader:
        left = [batch for batch, _ in zip(loader, range(3), strict=False)]
        whole = list(loader)
        for copy in stagers[0].under_way:
            copy.run()
    assert [batch.unique().tolist() for batch in left] == [[float(i)] for i in range(3)]
    assert [batch.unique().tolist() for batch in whole] == [[float(i)] for i in range(BATCHES)]


@pytest.mark.parametrize("ahead", [0, 2])
def test_an_error_of_the_stager_costs_one_batch(monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    class Picky(LateStager):
        def stage(self, source: Source) -> Staged:
            batch: torch.Tensor = source.opened()
            if batch[0, 0] == 1:
                raise ValueError("not this one")
            return Staged(batch)

    monkeypatch.setattr(iterator, "stager_for", lambda *_: Picky(ahead))
    with stoker.DataLoader(Wide(), batch_size=1, num_workers=2, executor="process") as loader:
        batches = iter(loader)
        assert next(batches)[0, 0] == 0
        with pytest.raises(ValueError, match="not this one"):
            next(batches)
        assert next(batches)[0, 0] == 2
