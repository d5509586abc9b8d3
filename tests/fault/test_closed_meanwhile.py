"""A loader that another thread closes while this one is in ``iter()`` or ``next()``: LoaderClosed, and nothing is left."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker._runtime.engine.stall_monitor import StallMonitor
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker.errors import LoaderClosed


class Wide(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((6000,), float(index))


def close_elsewhere(loader: Any) -> None:
    """Close the loader on another thread."""
    thread = threading.Thread(target=loader.close)
    thread.start()
    thread.join()


def closes_after(loader: Any, patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """Let another thread close the loader right after a call of this method that asks for something."""
    method = getattr(owner, name)

    def closed_after(self: Any, *args: Any) -> Any:
        result = method(self, *args)
        if result != []:
            patch.undo()
            close_elsewhere(loader)
        return result

    patch.setattr(owner, name, closed_after)


def test_in_iter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first task cannot be sent any more."""
    with stoker.DataLoader(Wide(), batch_size=2, num_workers=1, persistent_workers=True) as loader:
        closes_after(loader, monkeypatch, Scheduler, "handle")
        with pytest.raises(LoaderClosed):
            next(iter(loader))
        assert len(list(loader)) == 30


@pytest.mark.parametrize(("owner", "name"), [(Scheduler, "handle"), (StallMonitor, "left_s")])
@pytest.mark.parametrize("options", [{}, {"record": False}], ids=str)
def test_in_next(owner: type, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A task cannot be sent, or there is nothing to wait for any more."""
    with stoker.DataLoader(Wide(), batch_size=2, num_workers=1, persistent_workers=True, **options) as loader:
        batches = iter(loader)
        kept = [next(batches) for _ in range(3)]
        closes_after(loader, monkeypatch, owner, name)
        with pytest.raises(LoaderClosed):
            kept += batches
        assert [batch.unique().tolist() for batch in kept] == [
            [2.0 * number, 2.0 * number + 1] for number in range(len(kept))
        ]
        assert len(list(loader)) == 30
