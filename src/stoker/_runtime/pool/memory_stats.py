"""The entry ``loader.stats()["memory"]``: a dict of plain numbers over all pools of a loader."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from stoker._runtime.executors.base import WorkerMemory
from stoker._runtime.pool.pool import Pool


def memory(pools: Sequence[Pool], kept: Sequence[Pool] = ()) -> dict[str, Any]:
    """Sums over the pools, and one entry per worker process. Called on any thread; it changes no decision.

    Of pools whose memory is ``kept`` for the next epoch the arena counts.
    """
    for pool in pools:
        if pool.budget is not None:
            with suppress(OSError):  # closed by another thread meanwhile
                pool.read_budget(pool.budget)
    figures: dict[str, Any] = {
        "budget_bytes": sum(pool.budget.bytes for pool in pools if pool.budget is not None),
        "budget_reason": "; ".join(pool.budget.reason for pool in pools if pool.budget is not None)
        or "nothing is made ahead",
        "undelivered_bytes": sum(pool.undelivered_bytes for pool in pools),
        "arena_bytes": 0,
        "leased_bytes": 0,
        "workers": [],
    }
    for pool in (*pools, *kept):
        arena = pool.arena
        with suppress(OSError, ValueError):
            if arena is not None:
                figures["arena_bytes"] += arena.resident_bytes()
                figures["leased_bytes"] += arena.leased_bytes()
    for pool in pools:
        with suppress(OSError, ValueError):
            figures["workers"] += [_figures(weight) for weight in pool.executor.memory()]
    return figures


def _figures(weight: WorkerMemory) -> dict[str, Any]:
    growth = None
    if weight.private_bytes is not None and weight.baseline_bytes is not None:
        growth = max(0, weight.private_bytes - weight.baseline_bytes)
    return {
        "worker": weight.worker,
        "pid": weight.pid,
        "pss_bytes": weight.pss_bytes,
        "private_bytes": weight.private_bytes,
        "private_growth_bytes": growth,
    }
