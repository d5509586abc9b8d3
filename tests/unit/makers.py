"""Makers and orders for tests, with everything in them that does not matter there."""

from __future__ import annotations

from typing import Any

from stoker._runtime.protocol.worker_spec import BatchOrder, WorkerSpec
from stoker._runtime.worker.batch_maker import BatchMaker, StatusView


def spec(dataset: Any, **changed: Any) -> WorkerSpec:
    arguments: dict[str, Any] = {
        "dataset": dataset, "iterable": False, "auto_collation": True, "collate_fn": list, "drop_last": False,
        "worker_init_fn": None, "num_workers": 1, "rng": "batch", "rank": 0, "own_collate": False, **changed,
    }  # fmt: skip
    return WorkerSpec(**arguments)


def maker(
    dataset: Any,
    *,
    worker: int = 0,
    inline: bool = False,
    shared: bool = False,
    watch: StatusView | None = None,
    **changed: Any,
) -> BatchMaker:
    return BatchMaker(spec(dataset, **changed), worker, inline=inline, shared=shared, watch=watch)


def order(indices: Any, **changed: Any) -> BatchOrder:
    rows = len(indices) if isinstance(indices, list) else 0
    whole = BatchOrder(1, 0, 0, 0, 0, 1, 0, rows, rows, 77, 5, 0, indices)
    return whole._replace(**changed)
