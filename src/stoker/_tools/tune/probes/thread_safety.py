"""Compares batches that many threads make at the same time with those of one thread.

    one thread, twice ──► they differ: samples are random, and nothing can be shown
                     └──► they are equal ──► the same batches by many threads ──► equal, or threads would change them

``subject.trial``: ``threads``, ``batches``, ``rows`` (how many indices of a batch are used; None: all), ``seconds`` (for repeating
the threads' part) and ``limit_s`` for each part. The parts run in forks, because a dataset that threads break may end its process.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from stoker._record.finding import cut
from stoker._runtime.executors.process.start_method import live_hazards
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.worker.process.process_setup import single_thread
from stoker._tools.probes.batch_bytes import batch_bytes
from stoker._tools.probes.digest import digest
from stoker._tools.sandbox.child import NoAnswer, run
from stoker._tools.sandbox.refusal import failure_of
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.time_limit import limit
from stoker._tools.tune.facts import ThreadSafety
from stoker._tools.tune.instruments.bench_loader import BenchLoader, EndlessOrder, limit_native_threads

_THREADS, _BATCHES = 8, 32
_SECONDS, _LIMIT_S = 1.0, 20.0
_ROUNDS = 10
_SWITCH_S = 1e-5
"""Threads take turns at Python's lock much more often than usual, so that few batches are enough."""
_HELD_BYTES = 256 << 20
_SHOWN = 4
_LONGEST = 160


class RefilledMemory(Exception):
    """The loader found that ``__getitem__`` returns memory that it fills again."""


def probe(subject: Subject) -> ThreadSafety:
    """Never raises for errors of the user's code."""
    limit_native_threads()
    trial = subject.trial
    threads, limit_s = int(trial.get("threads", _THREADS)), float(trial.get("limit_s", _LIMIT_S))
    try:
        order = _order(subject, int(trial.get("batches", _BATCHES)), trial.get("rows"))
    except Exception as error:
        return ThreadSafety(None, f"the sampler raised {failure_of(error)}")
    alone = _apart(lambda: [_taken(subject, order, 1, seed) for seed in (1, 2)], limit_s)
    if isinstance(alone, NoAnswer):
        if RefilledMemory.__name__ in alone.reason:
            return _refilled()
        return ThreadSafety(None, f"the batches of one thread cannot be compared ({_line(alone)})")
    if alone[0] != alone[1]:
        return ThreadSafety(
            None,
            "samples are random, so nothing shows that threads leave them as they are "
            "(random numbers of stoker.generator() can be compared)",
        )
    seconds = float(trial.get("seconds", _SECONDS))
    found = _apart(lambda: _rounds(subject, order, threads, seconds, alone[0]), limit_s)
    if isinstance(found, NoAnswer):
        if RefilledMemory.__name__ in found.reason:
            return _refilled()
        safe = False if found.raised or found.exit_code is not None else None
        return ThreadSafety(safe, f"with {threads} threads at once: {_line(found)}")
    if found:
        return ThreadSafety(False, _difference(found, order, threads))
    return ThreadSafety(
        True, f"{len(order)} batches of {threads} threads are equal to those of one, bit by bit"
    )


def _order(subject: Subject, count: int, rows: int | None) -> list[Any]:
    found = list(islice(EndlessOrder(subject), max(1, count)))
    return [each[:rows] if rows and isinstance(each, list) else each for each in found]


def _apart(function: Callable[[], Any], limit_s: float) -> Any:
    """What the function returns in a fork; here, where a fork is no safe place. ``NoAnswer`` if it raised or took too long."""
    if not live_hazards():
        [found] = run([function], limit_s)
        return found
    try:
        with limit(limit_s):
            return function()
    except Exception as error:
        return NoAnswer(f"{type(error).__name__}: {error}", raised=not isinstance(error, TimeoutError))


def _rounds(
    subject: Subject, order: Sequence[Any], threads: int, seconds: float, expected: list[int]
) -> list[int]:
    """The numbers of the batches that differ in one of several rounds."""
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    began = time.monotonic()
    try:
        for number in range(_ROUNDS):
            if number and time.monotonic() - began > seconds:
                break
            found = _taken(subject, order, threads, 3 + number, holds=True)
            if found != expected:
                return [at for at, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1]]
    finally:
        sys.setswitchinterval(switch_s)
    return []


def _taken(
    subject: Subject, order: Sequence[Any], threads: int, seed: int, *, holds: bool = False
) -> list[int]:
    """The digests of all batches. With ``holds``, they are taken at the end, because a later sample may write to a batch.

    The global generators differ from call to call, and the base seed, on which ``stoker.generator()`` depends, does not.
    """
    import torch

    single_thread()
    torch.manual_seed(seed)
    base = torch.Generator().manual_seed(0)
    setting = Setting(min(threads, len(order)), prefetch=2, executor="thread")
    bench = BenchLoader(subject, setting, order=order, generator=base)
    found: list[Any] = []
    left_bytes = _HELD_BYTES if holds else 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            bench.open()
            for _ in order:
                batch = bench.take()
                left_bytes -= batch_bytes(batch) + 1
                found.append(_Digested(digest(batch, strict=True)) if left_bytes < 0 else batch)
                if bench.refills_samples:
                    raise RefilledMemory
        finally:
            bench.close()
    return [each if type(each) is _Digested else digest(each, strict=True) for each in found]


class _Digested(int):
    """The digest of a batch that is no more held."""


def _refilled() -> ThreadSafety:
    return ThreadSafety(False, "__getitem__ returns memory that it fills again for a later sample")


def _line(found: NoAnswer) -> str:
    return cut(found.reason.partition("\n")[0], _LONGEST)


def _difference(numbers: Sequence[int], order: Sequence[Any], threads: int) -> str:
    rows = [index for at in numbers for index in (order[at] if isinstance(order[at], list) else [order[at]])]
    more = " and others" if len(rows) > _SHOWN else ""
    some = ", ".join(str(each) for each in rows[:_SHOWN])
    return f"{len(numbers)} of {len(order)} batches of {threads} threads differ from those of one, with rows {some}{more}"
