"""Forks a worker as torch would and makes samples in it: which threads compute, and what stays open."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from stoker._host.cpus import cpus
from stoker._host.environment import thread_variables
from stoker._host.process_memory import footprint
from stoker._tools.doctor.facts.worker import WorkerFacts
from stoker._tools.doctor.instruments.trial import fetcher, in_worker, spread
from stoker._tools.doctor.probes import FactUnavailable
from stoker._tools.sandbox.subject import Subject

_SAMPLES = 64
_MEASURED_S = 0.5
_AS_BEFORE = 0.7
_BESIDE = 0.05
"""CPU time of other threads over the main one's, from which on it is worth asking whose they are."""


class _WorkerAnswer(NamedTuple):
    samples: int
    wall_s: float
    cpu_s: float
    main_cpu_s: float
    threads_started: int
    python_threads: tuple[str, ...]
    pools: dict[str, int]
    descriptors: int
    descriptors_per_sample: float
    left_open: tuple[str, ...]
    private_bytes: int | None

    @property
    def beside_s(self) -> float:
        return max(0.0, self.cpu_s - self.main_cpu_s) / max(1, self.samples)


def probe(subject: Subject) -> WorkerFacts:
    """About 0.6 s; twice or three times that when other threads compute, to see whose they are."""
    indices = spread(subject, _SAMPLES)
    seen = in_worker(subject, partial(_seen, subject, indices))
    if not seen.samples:
        raise FactUnavailable("no sample could be made in a worker")
    found = cpus()
    return WorkerFacts(
        **seen._asdict(),
        computing=_whose(subject, indices, seen),
        usable_cpus=found.usable,
        ranks=found.ranks,
        variables=thread_variables(os.environ),
    )


def _seen(
    subject: Subject, indices: Sequence[Any], prepare: Callable[[], None] | None = None
) -> _WorkerAnswer:
    """Runs in the worker. ``prepare``: holds some library to one thread."""
    if prepare is not None:
        prepare()
    threads, python = _native_threads(), set(threading.enumerate())
    fetch = fetcher(subject)
    fetch(indices[:1])
    opened = [_descriptors()]
    wall, cpu, main = time.perf_counter(), time.process_time(), time.thread_time()
    made, halfway = 0, 0
    for number, index in enumerate(indices[1:]):
        made += len(fetch([index]))
        spent = time.perf_counter() - wall
        if not halfway and (number >= len(indices) // 2 or spent > _MEASURED_S / 2):
            halfway = made
            opened.append(_descriptors())
        if spent > _MEASURED_S:
            break
    spent, cpu, main = time.perf_counter() - wall, time.process_time() - cpu, time.thread_time() - main
    opened.append(_descriptors())
    started = tuple(each.name for each in threading.enumerate() if each not in python)
    found = footprint()
    left = [name for number, name in opened[-1].items() if opened[0].get(number) != name]
    counts = [len(each) for each in opened]
    steady = len(counts) == 3 and _goes_on(counts, halfway, made)
    return _WorkerAnswer(
        samples=made,
        wall_s=spent,
        cpu_s=cpu,
        main_cpu_s=main,
        threads_started=max(0, _native_threads() - threads - len(started)),
        python_threads=started,
        pools=_pools(),
        descriptors=counts[-1],
        descriptors_per_sample=(counts[-1] - counts[0]) / made if steady and made else 0.0,
        left_open=tuple(left[:3]) if steady else (),
        private_bytes=found.private_bytes if found else None,
    )


def _goes_on(counts: Sequence[int], halfway: int, made: int) -> bool:
    """Whether descriptors grew in the second half about as in the first. Handles that are kept, one per file, become fewer."""
    first, second = (
        (counts[1] - counts[0]) / max(1, halfway),
        (counts[2] - counts[1]) / max(1, made - halfway),
    )
    return first > 0 and second > _AS_BEFORE * first


def _whose(subject: Subject, indices: Sequence[Any], seen: _WorkerAnswer) -> str:
    """The library whose threads compute: the one that, held to one thread, takes most of that time away."""
    if seen.cpu_s - seen.main_cpu_s < _BESIDE * seen.main_cpu_s:
        return ""
    for names, prepare in (
        (("cv2",), _hold_cv2),
        (
            tuple(name for name in seen.pools if name not in ("cv2", "numexpr", "tokenizers", "torch")),
            _hold_native,
        ),
    ):
        busy = [name for name in names if seen.pools.get(name, 1) > 1]
        if (
            busy
            and in_worker(subject, partial(_seen, subject, indices, prepare)).beside_s < seen.beside_s / 2
        ):
            return busy[0]
    return next((name for name in ("numexpr", "tokenizers") if seen.pools.get(name, 1) > 1), "")


def _hold_cv2() -> None:
    # A dataset may import it with its first sample: this worker has not made one.
    importlib.import_module("cv2").setNumThreads(0)


def _hold_native() -> None:
    from stoker._runtime.worker.process.native_pools import threadpool_limits

    threadpool_limits(1)


def _pools() -> dict[str, int]:
    """What each library says of itself. Loads none."""
    from stoker._runtime.worker.process.native_pools import threadpool_info

    pools: dict[str, int] = {}
    for each in threadpool_info():
        name = each["internal_api"] if each["user_api"] == "blas" else each["prefix"]
        pools[name] = max(pools.get(name, 0), int(each["num_threads"]))
    modules: dict[str, Any] = dict(sys.modules)
    if "torch" in modules:
        pools["torch"] = modules["torch"].get_num_threads()
    if hasattr(modules.get("cv2"), "getNumThreads"):
        pools["cv2"] = modules["cv2"].getNumThreads()
    if isinstance(getattr(modules.get("numexpr"), "nthreads", None), int):
        pools["numexpr"] = modules["numexpr"].nthreads
    if "tokenizers" in modules:
        # It says nothing itself. In a forked process it computes in parallel only when told to.
        parallel = os.environ.get("TOKENIZERS_PARALLELISM", "").lower() in ("true", "1", "on", "yes")
        threads = os.environ.get("RAYON_NUM_THREADS", "")
        pools["tokenizers"] = (int(threads) if threads.isdigit() else os.cpu_count() or 1) if parallel else 1
    return pools


def _native_threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def _descriptors() -> dict[int, str]:
    """Open ones and what they are."""
    found = {}
    try:
        for name in os.listdir("/proc/self/fd"):
            try:
                found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
            except OSError:  # the one that lists them
                continue
    except OSError:
        return {}
    return found
