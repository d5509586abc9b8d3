"""Compares the first batches of torch's loader, taken twice, with those of stoker's with a setting.

``subject.trial``: ``setting`` (as a dict), ``batches`` (3 by default), and ``limit_s`` for all of it. It runs in the sandbox
itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Any

from stoker._runtime.simulation.setting import Setting
from stoker._tools.probes.digest import NotComparable, digest
from stoker._tools.sandbox.refusal import failure_of
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.time_limit import BatchTimeout, limit
from stoker._tools.tune.facts import Likeness
from stoker._tools.tune.instruments.bench_loader import (
    BenchLoader,
    EndlessOrder,
    NoBatch,
    limit_native_threads,
)
from stoker._tools.tune.knobs.device import Device

_BATCHES = 3
_LIMIT_S = 20.0


def probe(subject: Subject) -> Likeness:
    """Never raises for errors of the user's code."""
    limit_native_threads()
    setting = replace(Setting.from_dict(subject.trial["setting"]), engine="stoker")
    setting = Device().put(setting, None)  # the data is compared where it can be read
    plain = Setting(0, engine="torch")
    if subject.is_stream:
        setting = Setting(0)  # with workers, the order of streams depends on timing
    count = max(1, int(subject.trial.get("batches", _BATCHES)))
    try:
        with limit(float(subject.trial.get("limit_s", _LIMIT_S))):
            order = None if subject.is_stream else list(islice(EndlessOrder(subject, shared=False), count))
            first, again = (_taken(subject, plain, order, count, seed) for seed in (1, 2))
            if first != again:
                return Likeness(
                    None, len(first), "samples are random: torch's loader gives other ones each time"
                )
            ours = _taken(subject, setting, order, count, 3)
    except BatchTimeout:
        return Likeness(None, 0, "making the first batches takes too long")
    except NotComparable as error:
        return Likeness(None, 0, f"batches hold what cannot be compared: {error}")
    except Exception as error:
        return Likeness(None, 0, f"the first batches could not be made: {failure_of(error)}")
    if first == ours:
        return Likeness(True, len(first), f"the first {len(first)} batches are equal, bit by bit")
    number = next((at for at, pair in enumerate(zip(first, ours, strict=False)) if pair[0] != pair[1]), 0)
    return Likeness(False, len(first), f"batch {number} differs between torch's loader and stoker's")


def _taken(
    subject: Subject, setting: Setting, order: Iterable[Any] | None, count: int, seed: int
) -> list[int]:
    import torch

    torch.manual_seed(seed)
    bench = BenchLoader(subject, setting, order=order)
    found: list[int] = []
    try:
        bench.open()
        while len(found) < count:
            found.append(digest(bench.take(), strict=True))
    except NoBatch:  # the loader has few batches
        if not found:
            raise
    finally:
        bench.close()
    return found
