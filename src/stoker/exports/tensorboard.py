"""Writes what a loader did since the last call as TensorBoard scalars. ``pip install tensorboard``.

    from stoker.exports import tensorboard
    for step, batch in enumerate(loader):
        ...
        if step % 100 == 0:
            tensorboard.log(writer, loader, step)

``writer`` is torch.utils.tensorboard's ``SummaryWriter`` or anything else with ``add_scalar(tag, value, step)``: nothing is
imported here. What was not measured is not written.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from stoker._record.recorder import Recorder
from stoker._record.run_page.summary import Sums, added, sums_of
from stoker.loader import DataLoader

_before: weakref.WeakKeyDictionary[Recorder, dict[str, Sums]] = weakref.WeakKeyDictionary()


def log(writer: Any, loader: DataLoader[Any], step: int, *, prefix: str = "stoker") -> None:
    """Write one scalar for each figure, under ``prefix/name of the loader/``, about the time since the call before.

    Called by the training loop, every hundred steps say: it takes two or three milliseconds. Without a record
    (``record=False``), and before the first batch, nothing is written.
    """
    add = getattr(writer, "add_scalar", None)
    if add is None:
        raise TypeError(
            f"log() writes to torch.utils.tensorboard's SummaryWriter (pip install tensorboard), or to anything with "
            f"add_scalar, and not to a {type(writer).__name__}"
        )
    recorder = loader._observer()
    if recorder is None:
        return
    record = recorder.record(steps=False, weigh=False).loaders[0]
    now = sums_of(record)
    earlier = _before.setdefault(recorder, {})
    since = added(now, earlier[prefix]) if prefix in earlier else now
    earlier[prefix] = now
    place = f"{prefix}/{recorder.name}"
    for name, value in _scalars(since):
        add(f"{place}/{name}", value, step)
    totals = record.totals
    counts = {"restarts": totals.worker_deaths, "bad_samples": totals.bad_samples, "stalls": totals.stalls}
    if totals.steps:
        for name, count in counts.items():
            add(f"{place}/{name}", count, step)


def _scalars(since: Sums) -> Iterator[tuple[str, float]]:
    whole_ns = since["wait_ns"] + since["step_ns"]
    if since["steps"] and whole_ns:
        yield "stall", since["wait_ns"] / whole_ns
        yield "ready", since["ready"] / since["steps"]
        yield "batches_per_s", since["steps"] * 1e9 / whole_ns
        yield "samples_per_s", since["rows"] * 1e9 / whole_ns
        yield "wait_ms", since["wait_ns"] / since["steps"] / 1e6
        yield "step_ms", since["step_ns"] / since["steps"] / 1e6
        for cause, ns in since["causes"].items():
            yield f"wait_ms_{cause}", ns / since["steps"] / 1e6
    metered = {"cpu": since["cpu_ns"], "runq": since["runq_ns"], "off": since["off_ns"]}
    at_work_ns = sum(ns or 0 for ns in metered.values())
    if at_work_ns:
        for state, some_ns in metered.items():
            yield f"workers_{state}", (some_ns or 0) / at_work_ns
