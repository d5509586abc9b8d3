"""The loop calls the observer's hooks in one order, whatever becomes of a batch. Batches are made on this thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch.utils.data import Dataset

import stoker
from stoker._runtime.engine import iteration
from stoker._runtime.engine.step_writer import StepWriter

HOOKS = ("asked", "waiting", "ready", "gave_up", "planned", "opened", "failed", "staged", "close")
BATCH = ["asked", "waiting", "ready", "planned", "opened"]
END = ["asked", "waiting", "close", "gave_up"]


class Numbers(Dataset[int]):
    """Index 1 is bad."""

    def __init__(self, error: type[BaseException] | None = None) -> None:
        self.error = error

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        if self.error is not None and index == 1:
            raise self.error("index 1")
        return index


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hooks that were called, in order."""
    names: list[str] = []

    def noted(name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            names.append(name)
            return hook(*given, **named)

        return call

    class Noted(StepWriter):
        """A step writer whose calls are written down."""

    for name in HOOKS:
        setattr(Noted, name, noted(name, getattr(StepWriter, name)))
    monkeypatch.setattr(iteration, "StepWriter", Noted)
    return names


def test_every_batch_and_the_end(called: list[str]) -> None:
    assert len(list(stoker.DataLoader(Numbers(), num_workers=0))) == 3
    assert called == BATCH * 3 + END


def test_a_batch_that_failed_is_written_too(called: list[str]) -> None:
    batches = iter(stoker.DataLoader(Numbers(ValueError), num_workers=0))
    next(batches)
    with pytest.raises(ValueError, match="index 1"):
        next(batches)
    next(batches)
    failed = [*BATCH[:-1], "failed", "opened"]  # it is written as one that was opened
    assert called == BATCH + failed + BATCH


def test_a_loader_without_a_record_has_no_observer(called: list[str]) -> None:
    assert len(list(stoker.DataLoader(Numbers(), num_workers=0, record=False))) == 3
    assert called == []


def test_leaving_early_closes_the_observer(called: list[str]) -> None:
    batches = iter(stoker.DataLoader(Numbers(), num_workers=0))
    next(batches)
    del batches
    assert called == [*BATCH, "close"]
