"""Scans the dataset, ``collate_fn`` and ``worker_init_fn`` of a subject. Runs no code of theirs but what pickling runs."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import context
from typing import Any

from stoker._doctor.facts.scan import Scan
from stoker._doctor.scanning import travel
from stoker._doctor.scanning.source import readings
from stoker._doctor.scanning.telling import told
from stoker._doctor.scanning.walk import Walk
from stoker._doctor.subject import Subject
from stoker._metrics.room import Gauge
from stoker._share.shipment import Recorder

_context: Any = context
_ARGUMENTS = ("collate_fn", "worker_init_fn")


def probe(subject: Subject) -> Scan:
    """What the dataset holds. Takes about 10 ms, a second for tens of millions of items."""
    start = time.perf_counter()
    roots = [("dataset", subject.dataset)]
    roots += [
        (name, subject.arguments[name]) for name in _ARGUMENTS if subject.arguments.get(name) is not None
    ]
    with _spawning(), _uncollected():
        walk = Walk(roots)
        trial = travel.attempt(walk, tuple(root for _, root in roots))
    return told(
        walk,
        trial,
        readings=readings(subject.dataset),
        room_bytes=Gauge().read().available_bytes,
        scan_s=time.perf_counter() - start,
    )


@contextmanager
def _uncollected() -> Iterator[None]:
    """A look for garbage among ten million items takes longer than the scan."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def _spawning() -> Iterator[None]:
    """multiprocessing's locks and queues let themselves be pickled for a process that is being started, and for nobody else."""
    recorder = Recorder()
    previous = _context.get_spawning_popen()
    _context.set_spawning_popen(recorder)
    try:
        yield
    finally:
        _context.set_spawning_popen(previous)
        recorder.close()
