"""Reads the facts of the machine as a training process here sees them. It takes about 0.1 s, or longer to pickle a large dataset.

``subject.trial``: ``ranks``, the number of training processes that share the machine. By default the environment says.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any

from stoker._host.cpus import Cpus, cpus
from stoker._host.environment import gil
from stoker._host.kernel_files import space
from stoker._host.limits import resource_limit
from stoker._host.memory_available import room_bytes
from stoker._runtime.executors.process.start_method import live_hazards
from stoker._runtime.simulation.work import Host
from stoker._tools.probes import accelerator
from stoker._tools.sandbox.subject import Subject
from stoker._tools.tune.instruments.pickled_size import pickled_size

_COPIED_BYTES = 32 << 20
_COPIES = 3


def probe(subject: Subject) -> Host:
    """Never fails for a missing fact, which is None. The dataset is pickled, so its ``__reduce__`` and the like run."""
    ranks = subject.trial.get("ranks")
    environ = os.environ if not ranks else {**os.environ, "LOCAL_WORLD_SIZE": str(int(ranks))}
    found = cpus(environ=environ)
    room = room_bytes()
    speed = _copy_bytes_per_s()
    pickled = pickled_size(subject.dataset, speed)
    return Host(
        cpus=_share(found),
        reason=found.reason,
        machine_cpus=found.machine,
        ranks=found.ranks,
        room_bytes=None if room is None else room // found.ranks,
        shm_bytes=space("/dev/shm")[1],
        descriptors=resource_limit("RLIMIT_NOFILE")[0],
        accelerator=accelerator.kind(),
        copy_bytes_per_s=speed,
        gil=gil(),
        start_method=_start_method(subject, sendable=pickled is not None),
        shipment_bytes=None if pickled is None else pickled.bytes,
        shipment_ns=None if pickled is None else pickled.ns,
    )


def _share(found: Cpus) -> float:
    """The usable CPUs. A quota may grant half a CPU beyond whole ones."""
    if found.quota is not None and found.usable == max(1, math.floor(found.quota / found.ranks)):
        return max(1.0, found.quota / found.ranks)
    return float(found.usable)


def _start_method(subject: Subject, *, sendable: bool) -> str:
    """The start method of stoker's loader: the target's own, the platform's, or a fork server if a fork would lose threads."""
    import torch.multiprocessing

    context: Any = subject.arguments.get("multiprocessing_context")
    if context is not None:
        return context if isinstance(context, str) else str(context.get_start_method())
    usual = str(torch.multiprocessing.get_context().get_start_method())
    return "forkserver" if usual == "fork" and sendable and live_hazards() else usual


def _copy_bytes_per_s() -> float | None:
    """The speed of the best of a few copies, in memory that was touched before."""
    import numpy as np

    try:
        source, target = np.ones(_COPIED_BYTES, np.uint8), np.ones(_COPIED_BYTES, np.uint8)
    except MemoryError:
        return None
    took_ns = []
    for _ in range(_COPIES):
        began_ns = time.perf_counter_ns()
        np.copyto(target, source)
        took_ns.append(time.perf_counter_ns() - began_ns)
    return _COPIED_BYTES / max(1, min(took_ns)) * 1e9
