"""Measures the work: one worker makes the target's own batches, in order, for about ``seconds``.

``subject.trial``: ``seconds`` (3 by default); ``limit_s``: the probe fails if no sample has been made by then. It runs in the
sandbox itself, or in a fork of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Work
from stoker._tools.sandbox.outcome import FactUnavailable
from stoker._tools.sandbox.refusal import failure_of
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.time_limit import BatchTimeout, limit
from stoker._tools.tune.instruments.bench_loader import BenchLoader, begin_anew, limit_native_threads
from stoker._tools.tune.instruments.probe_order import ProbeOrder
from stoker._tools.tune.instruments.threading_gain import keeps_batches, threads_gain
from stoker._tools.tune.instruments.worker_run import WorkerRun, scripted, streamed, work_of

_SECONDS = 3.0
_LIMIT_S = 60.0
_MAKING, _THREADS = 0.8, 0.2
"""The division of the time: batches by one worker, and samples by two threads."""
_STREAM_S = 5.0
"""If the first batch of a stream takes longer, single samples are measured."""
_MOST_BAD = 1000
_WAYS = ((1, True, False), (1, False, False), (1, True, True), (0, True, True))
"""The variants in order: workers, whether batches may be smaller, whether bad samples are left out."""


def probe(subject: Subject) -> Work:
    """Raises FactUnavailable if no sample can be made, for the reason that the samples give."""
    limit_native_threads()
    trial = subject.trial
    seconds, limit_s = float(trial.get("seconds", _SECONDS)), float(trial.get("limit_s", _LIMIT_S))
    bad: dict[Any, str] = {}
    run = _seen(subject, _MAKING * seconds, limit_s, bad)
    work = work_of(run)
    sample_s = (work.typical_ns - work.collate_ns) / 1e9 / work.rows
    return replace(
        work,
        threads_gain=threads_gain(subject, run.indices, sample_s, _THREADS * seconds),
        keeps_batches=keeps_batches(subject, run.indices, work.rows, seconds),
        bad=tuple(index for index in bad if isinstance(index, int))[:_MOST_BAD],
        bad_text=next(iter(bad.values()), ""),
    )


def rows_per_batch(subject: Subject) -> int:
    """The loader's batch size; that of the first batch with a batch sampler of the user's; 1 without batching."""
    given = subject.arguments.get("batch_size")
    if isinstance(given, int) and given > 0:
        return given
    if subject.is_stream or subject.arguments.get("batch_sampler") is None:
        return 1
    first = next(iter(subject.batches()), None)
    return max(1, len(first)) if isinstance(first, list | tuple) else 1


def _seen(subject: Subject, seconds: float, limit_s: float, bad: dict[Any, str]) -> WorkerRun:
    """Measure the target as it is. If that fails: with whole batches only, without bad samples, without a worker."""
    first: Exception | None = None
    for workers, small, skip in _WAYS:
        try:
            return _tried(subject, seconds, limit_s, workers=workers, small=small, skip=skip, bad=bad)
        except BatchTimeout as error:
            raise FactUnavailable(str(error)) from None
        except Exception as error:
            first = first or error
            begin_anew(subject)
        if bad:
            break
    assert first is not None
    index, reason = next(iter(bad.items()), (None, failure_of(first)))
    where = "" if index is None else f": sample {index}"
    raise FactUnavailable(f"no batch could be made{where}: {reason}")


def _tried(
    subject: Subject, seconds: float, limit_s: float, *, workers: int, small: bool, skip: bool, bad: dict[Any, str]
) -> WorkerRun:  # fmt: skip
    if subject.is_stream:
        return _tried_stream(subject, seconds, limit_s, workers=workers, skip=skip, bad=bad)
    rows = rows_per_batch(subject)
    order = ProbeOrder(subject, rows=1 if small and rows > 1 else None)
    bench = _bench(subject, workers, skip, order)
    try:
        with limit(limit_s, "no sample was made"):
            return scripted(bench, order, seconds, rows)
    finally:
        _end(bench, skip, bad)


def _tried_stream(
    subject: Subject, seconds: float, limit_s: float, *, workers: int, skip: bool, bad: dict[Any, str]
) -> WorkerRun:
    """The stream's batches, if one comes soon; otherwise single samples."""
    rows = rows_per_batch(subject)
    patience_s = max(_STREAM_S, 2 * seconds)
    if rows > 1 and patience_s < limit_s:
        bench = _bench(subject, workers, skip)
        try:
            with limit(patience_s):
                return streamed(bench, seconds)
        except BatchTimeout:
            pass
        finally:
            _end(bench, skip, bad)
    if rows > 1:
        subject = replace(subject, arguments={**subject.arguments, "batch_size": 1, "drop_last": False})
    bench = _bench(subject, workers, skip)
    try:
        with limit(limit_s, "no sample was made"):
            run = streamed(bench, seconds)
    finally:
        _end(bench, skip, bad)
    return replace(run, scale=float(rows))


def _bench(subject: Subject, workers: int, skip: bool, order: ProbeOrder | None = None) -> BenchLoader:
    context = subject.arguments.get("multiprocessing_context")
    method = context if context is None or isinstance(context, str) else context.get_start_method()
    setting = Setting(workers, prefetch=2, split=False, start_method=method)
    return BenchLoader(subject, setting, order=order, on_bad_sample="skip" if skip else None)


def _end(bench: BenchLoader, skip: bool, bad: dict[Any, str]) -> None:
    if skip:
        found = bench.loader.stats()["bad_samples"]["indices"]
        bad.update((index, str(each["reason"])) for index, each in found.items())
    bench.close()
