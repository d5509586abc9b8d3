"""Makes a process look like another rank, for datasets and samplers that take their share by rank."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from typing import Any

_ASKS = re.compile(r"get_rank|get_world_size|WORLD_SIZE|['\"]RANK['\"]|process_index|\brank\b")
_WORLD_NAMES = ("num_replicas", "world_size", "num_ranks", "nranks")


def world_of(environ: Mapping[str, str], holder: object) -> tuple[int, bool]:
    """How many ranks there are, and whether somebody says so: the dataset or sampler, or else the environment. (2, False) for one
    whose code only asks for its rank; else (1, False)."""
    for name in _WORLD_NAMES:
        found = _count(holder, name)
        if found is not None and found > 1:
            return found, True
    told = environ.get("WORLD_SIZE", "")
    if told.isdigit() and int(told) > 1:
        return int(told), True
    return (2 if asks(holder) else 1), False


def asks(holder: object) -> bool:
    """Whether the code of its class mentions ranks."""
    if _count(holder, "rank") is not None:
        return True
    try:
        return _ASKS.search(inspect.getsource(type(holder))) is not None
    except (OSError, TypeError):  # no source: a notebook's class that is gone, or one in C
        return False


def pretend(holder: Any, rank: int, world: int) -> None:
    """In a fork: let the environment, torch.distributed and the holder's own attributes say so. Never undone."""
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world)
    )
    _pretend_group(rank, world)
    if _count(holder, "rank") is not None:
        holder.rank = rank
        for name in _WORLD_NAMES:
            if _count(holder, name) is not None:
                setattr(holder, name, world)


def _pretend_group(rank: int, world: int) -> None:
    """Functions get another body, because user code may hold them by names of its own."""
    import torch.distributed

    if not torch.distributed.is_available():
        return
    bodies = {"get_rank": rank, "get_world_size": world, "is_initialized": True}
    for name, value in bodies.items():
        made: dict[str, Any] = {}
        exec(f"def {name}(*told, **named): return {value!r}", made)
        getattr(torch.distributed, name).__code__ = made[name].__code__


def _count(holder: object, name: str) -> int | None:
    found = getattr(holder, "__dict__", {}).get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else None
