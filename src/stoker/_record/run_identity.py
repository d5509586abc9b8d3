"""Identifies this run: its process, its start and its rank."""

from __future__ import annotations

import os
import sys
import time
import uuid

from stoker._host.secrets import masked_words
from stoker._record.schema import Run


def run_here() -> Run:
    """A run of this process that begins now."""
    now_ns, unix_ns = _now()
    rank, world_size = _ranks()
    return Run(
        id=uuid.uuid4().hex[:16],
        pid=os.getpid(),
        argv=masked_words(getattr(sys, "orig_argv", sys.argv)),
        began_unix_ns=unix_ns,
        began_ns=now_ns,
        rank=rank,
        world_size=world_size,
    )


def _ranks() -> tuple[int, int]:
    """This rank and how many there are: of the process group if there is one, else as a launcher says."""
    group = sys.modules.get("torch.distributed")
    if group is not None and group.is_available() and group.is_initialized():
        return group.get_rank(), group.get_world_size()
    return _number("RANK", 0), _number("WORLD_SIZE", 1)


def _now() -> tuple[int, int]:
    """One moment on the monotonic clock and on the calendar: of a few readings the one that was interrupted least."""
    readings = []
    for _ in range(5):
        before_ns, unix_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after_ns - before_ns, (before_ns + after_ns) // 2, unix_ns))
    _, now_ns, unix_ns = min(readings)
    return now_ns, unix_ns


def _number(name: str, default: int) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 8 else default
