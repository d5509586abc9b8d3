"""Epochs in great number, in one process: nothing grows with them. STOKER_EPOCHS asks for more than CI has time for."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import psutil
import pytest

import stoker

EPOCHS = int(os.environ.get("STOKER_EPOCHS", "15"))
WARM_UP = 6
GROWTH_BYTES = 6 << 20
"""What a process may grow by, whatever the number of epochs: the allocator's own give and take."""


def whole(loader: Any) -> None:
    assert sum(len(batch) for batch in loader) == 40


def first_only(loader: Any) -> None:
    next(iter(loader))


def nothing_read(loader: Any) -> None:
    iter(loader)


def new_loader_dropped_at_its_end(loader: Any) -> None:
    batches = iter(stoker.DataLoader(loader.dataset, 8, num_workers=loader.num_workers))
    del loader
    for _ in batches:
        pass


@pytest.mark.serial
@pytest.mark.parametrize(
    ("workers", "persistent"), [(0, False), (2, False), (4, False), (2, True), (4, True)]
)
@pytest.mark.parametrize("epoch", [whole, first_only, nothing_read, new_loader_dropped_at_its_end])
def test_nothing_grows(epoch: Callable[[Any], None], workers: int, persistent: bool) -> None:
    me, rows = psutil.Process(), list(range(40))
    made: Any = stoker.DataLoader(rows, 8, num_workers=workers, persistent_workers=persistent)  # type: ignore[arg-type]
    with made as loader:
        for _ in range(WARM_UP):
            epoch(loader)
        loader.trim()
        gc.collect()
        before = me.memory_info().rss, me.num_fds()
        for _ in range(EPOCHS):
            epoch(loader)
        loader.trim()
        gc.collect()
        grown = me.memory_info().rss - before[0]
        assert grown < GROWTH_BYTES
        assert me.num_fds() <= before[1] + 8 * max(1, workers)  # those of workers that are about to leave
        assert len(me.children()) <= 2 * workers + 1
    gc.collect()
    assert not [
        child for child in me.children() if child.status() != psutil.STATUS_ZOMBIE and _is_worker(child)
    ]
    assert threading.active_count() <= 2


def _is_worker(child: psutil.Process) -> bool:
    try:
        return "resource_tracker" not in " ".join(child.cmdline())
    except psutil.Error:
        return False
