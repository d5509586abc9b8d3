"""Chooses the start method: libraries whose thread pools die in a fork call for the fork server.

A fork copies one thread. A pool whose other threads are gone looks whole in the child but never answers, so the first batch does
not come. A worker of the fork server starts without such pools, if the dataset can be sent there.

A library is listed when a forked child that uses it was seen to hang or was refused, or when its authors say so. Libraries whose
pools survive (BLAS, OpenMP and OpenCV with one thread per worker) are not listed. ``docs/start-methods.md`` has the reasons.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from stoker._host import memory_available
from stoker._pickling.spec_pickle import SpecPickle
from stoker._runtime.protocol.worker_spec import WorkerSpec
from stoker.errors import UnsendableError

_TASKS = Path("/proc/self/task")
_log = logging.getLogger("stoker")


@dataclass(frozen=True, slots=True)
class ForkEvidence:
    """How to recognise the threads of a pool: by the start of the kernel's name (15 characters at most), or by Python's name."""

    native: tuple[str, ...] = ()
    python: tuple[str, ...] = ()

    def seen(self, native: Collection[str], python: Collection[str]) -> bool:
        """Whether one of these names belongs to such a thread."""
        return any(name.startswith(self.native) for name in native) or not set(self.python).isdisjoint(python)


@dataclass(frozen=True, slots=True)
class ForkHazard:
    """A module with a pool that does not survive a fork. ``pool`` names it in messages."""

    module: str
    pool: str
    evidence: ForkEvidence


HAZARDS: tuple[ForkHazard, ...] = (
    ForkHazard("polars", "compute pool", ForkEvidence(native=("polars-",))),
    # s3fs, gcsfs and every other asynchronous file system run on this one thread.
    ForkHazard("fsspec", "event loop of s3fs, gcsfs and the like", ForkEvidence(python=("fsspecIO",))),
    # The codec's own threads have no name. zarr's loop shows that arrays were read or written here.
    ForkHazard("zarrs", "codec pool", ForkEvidence(python=("zarr_io",))),
    ForkHazard("lance", "tokio runtime", ForkEvidence(native=("lance_backgroun", "lance-cpu"))),
    ForkHazard("lancedb", "event loop", ForkEvidence(python=("LanceDBBackgroundEventLoop",))),
    # Best effort: FFmpeg names the threads of frame-based decoders, not those of slice-based ones.
    ForkHazard("av", "decoder threads of an open container", ForkEvidence(native=("av:",))),
)


class StartMethodChoice(NamedTuple):
    """A multiprocessing context, the hazards found, and a message for the user ("" for none)."""

    context: Any
    hazards: tuple[ForkHazard, ...] = ()
    reason: str = ""
    packed_spec: SpecPickle | None = None
    """The spec, packed to see whether it can be sent. The caller sends or closes it."""


def live_hazards() -> tuple[ForkHazard, ...]:
    """Return the listed hazards whose threads live in this process. Free when none of the modules is loaded."""
    loaded = [hazard for hazard in HAZARDS if hazard.module in sys.modules]
    if not loaded:
        return ()
    native = _native_threads()
    python = {thread.name for thread in threading.enumerate()}
    return tuple(hazard for hazard in loaded if hazard.evidence.seen(native, python))


def choose(context: Any, spec: WorkerSpec, *, name: str) -> StartMethodChoice:
    """Return the context to start workers with. Called once per pool, on the thread that iterates.

    The user's own choice is never changed. Otherwise it is the platform's default. If that is fork and a hazard is live, it is
    the fork server, provided that ``spec`` can be sent. ``name`` is the loader's name in messages.
    """
    if context is not None:
        return StartMethodChoice(context)
    context = torch.multiprocessing.get_context()
    if context.get_start_method() != "fork":
        return StartMethodChoice(context)
    hazards = live_hazards()
    if not hazards:
        return StartMethodChoice(context)
    try:
        # Under fork the dataset needs no copy, so this copy must not exhaust the memory.
        packed_spec = SpecPickle(spec, limit_bytes=(memory_available.room_bytes() or 0) // 2)
    except (UnsendableError, OSError, MemoryError) as error:
        return StartMethodChoice(context, hazards, _stays(name, hazards, error))
    server = torch.multiprocessing.get_context("forkserver")
    return StartMethodChoice(server, hazards, _moves(name, hazards), packed_spec)


def warn_once(choice: StartMethodChoice, warned: set[str]) -> None:
    """Log the message, once per loader and set of hazards.

    ``warned`` is the loader's, because pools may be built anew for every epoch.
    """
    if choice.reason:
        news = {f"fork hazard: {hazard.module}" for hazard in choice.hazards}
        if not news <= warned:
            warned |= news
            _log.warning("%s (stoker explain STK303)", choice.reason)


def _native_threads() -> set[str]:
    """Return the kernel's names of this process's threads. Empty without /proc."""
    names = set()
    try:
        threads = os.listdir(_TASKS)
    except OSError:
        return set()
    for thread in threads:
        try:
            names.add((_TASKS / thread / "comm").read_text(errors="replace").rstrip("\n"))
        except OSError:  # it has ended since
            continue
    return names


def _described(hazards: tuple[ForkHazard, ...]) -> str:
    return " and ".join(f"{hazard.module} ({hazard.pool})" for hazard in hazards)


def _moves(name: str, hazards: tuple[ForkHazard, ...]) -> str:
    return (
        f"{name}: workers are started by a clean fork server, not by fork. Threads of {_described(hazards)} live in this "
        "process; they do not survive a fork, and a forked worker that needs them would wait for ever. What workers will not "
        "see: module state set at run time (changed globals, patches, registered plug-ins). Pass "
        "multiprocessing_context='forkserver' to confirm this, or 'fork' if workers do not use the library: either silences "
        "this line."
    )


def _stays(name: str, hazards: tuple[ForkHazard, ...], error: BaseException) -> str:
    return (
        f"{name}: threads of {_described(hazards)} live in this process and do not survive the fork that starts the workers: "
        f"a worker that needs them waits for ever. They cannot be started by a clean fork server instead: {error} "
        "A worker that hangs will be reported with its Python stack. Pass multiprocessing_context='fork' if workers do not "
        "use the library: that silences this line."
    )
