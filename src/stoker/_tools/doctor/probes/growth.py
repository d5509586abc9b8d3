"""Forks one worker, lets it fetch samples from everywhere in the dataset, and looks at which of its pages became its own."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from stoker._host.local_ranks import local_ranks
from stoker._host.memory_available import room_bytes
from stoker._tools.doctor.facts import Missing
from stoker._tools.doctor.facts.growth import Container, GrowingContainer, GrowthFacts, GrowthWindow
from stoker._tools.doctor.instruments.containers import (
    FEW,
    PAGE_BYTES,
    ContainerPath,
    SampledObjects,
    containers,
    length,
    sampled,
)
from stoker._tools.doctor.instruments.pagemap import Pages, among, own_pages, pages
from stoker._tools.doctor.instruments.trial import fetcher, in_worker, spread
from stoker._tools.doctor.probes import FactUnavailable
from stoker._tools.sandbox.subject import Subject

_SAMPLES = 4096
_WARM_UP_S = 0.3
_MEASURED_S = 1.2
_WINDOWS = 6
LEAST_SAMPLES = 24
_LARGE_BYTES = 1 << 16
_MOST_CONTAINERS, _WHOLE, _SOME = 64, 6, 256
"""How many are looked at, how many of them at all places, and at how many places the others."""
_PLACE = re.compile(r"\[\d+\]")
_LEAST_EXPLAINED = 0.02


def probe(subject: Subject) -> GrowthFacts:
    """About 1.6 s, less when samples are quick. Not told when samples take so long that a few of them would say nothing."""
    places = containers(subject.dataset)
    indices = spread(subject, _SAMPLES)
    if len(indices) < 2 * LEAST_SAMPLES:
        raise FactUnavailable(f"the dataset has {len(indices)} samples: too few to tell growth from a start")
    found = in_worker(subject, partial(_observed, subject, indices, places, _looked_up(places, len(indices))))
    if isinstance(found, Missing):
        raise FactUnavailable(found.reason)
    return found


def _looked_up(places: Sequence[ContainerPath], samples: int) -> list[SampledObjects]:
    """Pages of the larger containers' objects, of the largest ones at as many places as samples are fetched.

    Items in the order of the dataset are looked at where samples are fetched: then their pages are known one by one.
    """
    large = sorted(
        (each for each in places if length(each.container) > FEW), key=lambda each: -length(each.container)
    )
    found = []
    for number, place in enumerate(large[:_MOST_CONTAINERS]):
        count = samples if number < _WHOLE else min(samples, _SOME)
        looked_up = sampled(place, [each / count for each in range(count)], 1 / count)
        if looked_up is not None and looked_up.object_bytes >= _LARGE_BYTES:
            found.append(looked_up)
    return found


class _OwnPages:
    """What the worker has of its own at one moment, against the fork."""

    def __init__(self, start: Pages) -> None:
        self._start = start

    def read(self) -> tuple[int, int]:
        """Bytes copied and bytes made anew since the fork."""
        copied, fresh = self._split()
        return len(copied) * PAGE_BYTES, fresh * PAGE_BYTES

    def copied(self) -> Any:
        """Numbers of the copied pages."""
        return self._split()[0]

    def _split(self) -> tuple[Any, int]:
        own = own_pages()
        was_shared = among(own, self._start.shared)
        return own[was_shared], int((~was_shared & ~among(own, self._start.own)).sum())


def _observed(
    subject: Subject, indices: Sequence[Any], places: Sequence[ContainerPath], kept: Sequence[SampledObjects]
) -> GrowthFacts | Missing:
    """Runs in the worker."""
    before = [length(each.container) for each in places]
    start = pages()
    if start is None:
        return Missing("the kernel does not tell which pages a worker has for itself (/proc/self/pagemap)")
    counted = _OwnPages(start)
    fetch = fetcher(subject)
    warm_up, sample_s = _warmed(fetch, indices)
    left = len(indices) - warm_up
    each = min(left // _WINDOWS, int(_MEASURED_S / _WINDOWS / max(sample_s, 1e-7)))
    if each * _WINDOWS < LEAST_SAMPLES:
        return Missing(
            f"a sample takes {sample_s:.2g} s: too few in {_MEASURED_S} s to tell growth from a start"
        )
    if not fetch(indices[:8]):
        return Missing(
            "the stream has too few items to tell growth from a start"
            if subject.is_stream
            else "no sample could be made in a worker"
        )
    counted.read()  # the first reading grows by what reading takes
    at, windows, settled = warm_up, [], counted.copied()
    last = counted.read()
    for _ in range(_WINDOWS):
        fetch(indices[at : at + each])
        at += each
        now = counted.read()
        # Signed: an allocator that takes and gives back in turns does not grow.
        windows.append(GrowthWindow(each, max(0, now[0] - last[0]), now[1] - last[1]))
        last = now
    return GrowthFacts(
        warm_up=warm_up,
        windows=tuple(windows),
        containers=_copied(np.setdiff1d(counted.copied(), settled), kept),
        growing=tuple(
            GrowingContainer(place.path, was, length(place.container))
            for place, was in zip(places, before, strict=True)
            if length(place.container) > was
        ),
        available_bytes=room_bytes(),
        ranks=local_ranks(os.environ)[0],
        copied_bytes=last[0],
    )


def _warmed(fetch: Any, indices: Sequence[Any]) -> tuple[int, float]:
    """Fetches the first samples: imports, caches and the allocator settle. How many, and seconds of one (the first left out)."""
    fetch(indices[:1])
    begun, done = time.perf_counter(), 1
    while done < max(8, len(indices) // 8):
        fetch(indices[done : done + 1])
        done += 1
        if time.perf_counter() - begun > _WARM_UP_S and done >= 2:
            break
    return done, (time.perf_counter() - begun) / max(1, done - 1)


def _copied(copied: Any, kept: Sequence[SampledObjects]) -> tuple[Container, ...]:
    """Containers of which pages were copied, and which share of all copied pages is theirs.

    Those of many datasets of one kind (``dataset.datasets[3].samples``) are told together.
    """
    found: dict[str, Container] = {}
    for each in kept:
        direct, control = among(each.pages, copied), among(each.control, copied)
        elsewhere = max(0.0, each.object_bytes / PAGE_BYTES - len(each.pages))
        rate = float(control.mean()) if len(control) else 0.0
        explains = (int(direct.sum()) + rate * elsewhere) / max(1, len(copied))
        container, path = each.place.container, _PLACE.sub("[*]", each.place.path)
        so_far = found.get(path)
        found[path] = Container(
            path if so_far else each.place.path,
            type(container).__name__,
            length(container) + (so_far.items if so_far else 0),
            each.object_bytes + (so_far.object_bytes if so_far else 0),
            max(float(direct.mean()) if len(direct) else 0.0, so_far.copied if so_far else 0.0),
            min(1.0, explains + (so_far.explains if so_far else 0.0)),
        )
    copies = (each for each in found.values() if each.explains >= _LEAST_EXPLAINED)
    return tuple(sorted(copies, key=lambda each: -each.explains))
