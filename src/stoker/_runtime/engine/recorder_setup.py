"""Makes the recorder of a loader, and connects the two through weak references."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from stoker import arguments
from stoker._receipt.loader_receipts import LoaderReceipts
from stoker._record.dataset_identity import length_of
from stoker._record.journal import sink_from_environment
from stoker._record.readings.worker_usage import Size
from stoker._record.recorder import Recorder
from stoker._record.schema import Option
from stoker._runtime.pool.loader_stats import LoaderStats

_MAX_TEXT = 200
"""Characters that are kept of a value's text."""

_TORCHS_SAMPLERS = ("SequentialSampler", "RandomSampler", "_InfiniteConstantSampler")
"""The samplers that torch's constructor makes when none is given."""


def make_recorder(loader: Any, options: arguments.Options, site: str | None) -> Recorder:
    """The recorder of a loader that is iterated for the first time. ``connect`` connects it to the loader."""
    given = isinstance(loader.record, str | os.PathLike)
    return Recorder(
        name=options.name,
        engine="stoker",
        executor=options.executor,
        dataset=f"{type(loader.dataset).__module__}.{type(loader.dataset).__qualname__}",
        site=site,
        options=_options(loader, options),
        sink=Path(loader.record) if given else _sink(),
        samples=None if isinstance(loader.dataset, IterableDataset) else length_of(loader.dataset),
    )


def quiet_recorder(name: str) -> Recorder:
    """A recorder for the autoscaler of a loader with ``record=False``. It shows nothing to anybody."""
    return Recorder(name=name, engine="stoker", executor="", dataset="", quiet=True)


def connect(recorder: Recorder, loader: Any, stats: LoaderStats, receipts: LoaderReceipts) -> None:
    """Let the recorder ask the loader for sizes and counts, and get its events. Neither keeps the other alive."""
    reference = weakref.ref(loader)

    def weights(*, sizes: bool) -> Iterable[Size]:
        alive = reference()
        pools = () if alive is None else alive._pools()
        return [_size(each) for pool in pools for each in pool.executor.memory(sizes=sizes)]

    recorder.connect(
        sizes=partial(weights, sizes=True),
        tallies=partial(weights, sizes=False),
        counts=stats.counts,
        receipts=receipts.summaries,
        cache=stats.cache.use,
    )
    receipts.connect(partial(_receipt_path, weakref.ref(recorder)))
    stats.report_to(recorder.event)
    weakref.finalize(loader, recorder.release)


def _receipt_path(recorder: weakref.ref[Recorder]) -> Path | None:
    alive = recorder()
    return None if alive is None else alive.receipt_path


def _sink() -> Path | None:
    """The folder that the environment names. None in a worker: a loader inside a dataset writes no record of its own."""
    return None if get_worker_info() is not None else sink_from_environment()


def _size(weight: Any) -> Size:
    growth = None
    if weight.private_bytes is not None and weight.baseline_bytes is not None:
        growth = max(0, weight.private_bytes - weight.baseline_bytes)
    sizes = weight.pss_bytes, weight.private_bytes, growth
    return Size(weight.worker, weight.pid, *sizes, weight.threads, weight.cpu_ns, weight.baseline_bytes)


def _options(loader: Any, options: arguments.Options) -> dict[str, Option]:
    """Every recorded argument: its value, and why it has that value."""
    return {
        each.name: _OPTIONS.get(each.name, _option)(loader, each, options)
        for each in arguments.ARGUMENTS
        if each.recorded
    }


def _option(loader: Any, argument: arguments.Argument, options: arguments.Options) -> Option:
    """The plain attribute. A default value counts as not given, because the two cannot be told apart."""
    value = getattr(loader, argument.name)
    why = "default" if value == argument.default else "given"
    return Option(_plain(value), options.reasons.get(argument.name, why))


def _prefetch_factor(loader: Any, argument: arguments.Argument, options: arguments.Options) -> Option:
    factor = loader.prefetch_factor
    left_open = isinstance(factor, arguments.LeftOpen)
    why = "left open: the window deepens where that helps" if left_open else "given"
    return Option(None if factor is None else int(factor), why)


def _executor(loader: Any, argument: arguments.Argument, options: arguments.Options) -> Option:
    return Option(options.executor, options.reasons.get("executor", "given"))


def _sampler(loader: Any, argument: arguments.Argument, options: arguments.Options) -> Option:
    name = type(loader.sampler).__name__
    return Option(name, "torch's, by shuffle and the dataset" if name in _TORCHS_SAMPLERS else "given")


def _collate_fn(loader: Any, argument: arguments.Argument, options: arguments.Options) -> Option:
    function = loader.collate_fn
    name = getattr(function, "__qualname__", type(function).__name__)
    return Option(name, "default" if name.startswith("default_") else "given")


_OPTIONS = {
    "prefetch_factor": _prefetch_factor,
    "executor": _executor,
    "sampler": _sampler,
    "collate_fn": _collate_fn,
}
"""The arguments whose recorded value is not the plain attribute."""


def note_start_method(recorder: Recorder, context: Any, asked: Any, reason: str) -> None:
    """Record the start method of a new pool. ``reason`` says why it is not the one asked for; empty if it is."""
    if context is not None:
        why = reason or ("given" if asked is not None else "the platform's default")
        recorder.options["start_method"] = Option(context.get_start_method(), why)


def _plain(value: Any) -> Any:
    """The value as JSON can hold it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value[:_MAX_TEXT])
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return repr(value)[:_MAX_TEXT]
