"""What the recorder of a loader has to know, and whom it may ask; without holding on to the loader."""

from __future__ import annotations

import math
import operator
import os
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from torch.utils.data import get_worker_info

from stoker import arguments
from stoker._record.journal import sink_from_environment
from stoker._record.recorder import Recorder
from stoker._record.run_page import page
from stoker._record.schema import Option, SlowestSample
from stoker._record.step_buffer import StepBuffer, pack_row
from stoker._record.worker_usage import Size
from stoker._runtime.device.idle_meter import IdleMeter, idle_meter
from stoker._runtime.engine.loader_stats import LoaderStats
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker._runtime.scheduler.types import Ticket

_clock = time.monotonic_ns
_TEXT = 200
"""Characters that are kept of what users name things by."""

_TORCHS_SAMPLERS = ("SequentialSampler", "RandomSampler", "_InfiniteConstantSampler")
"""What torch's constructor makes when no sampler is given."""


def recorder_of(loader: Any, options: arguments.Options, site: str | None) -> Recorder:
    """For a loader that is iterated for the first time; ``attach`` makes it the loader's."""
    given = isinstance(loader.record, str | os.PathLike)
    return Recorder(
        name=options.name,
        engine="stoker",
        executor=options.executor,
        dataset=f"{type(loader.dataset).__module__}.{type(loader.dataset).__qualname__}",
        site=site,
        options=_options(loader, options),
        sink=Path(loader.record) if given else _sink(),
    )


def quiet_recorder(name: str) -> Recorder:
    """For who has to look at what a loader does that keeps no record."""
    return Recorder(name=name, engine="stoker", executor="", dataset="", quiet=True)


def attach(recorder: Recorder, loader: Any, stats: LoaderStats) -> None:
    """Let the two of them tell each other, without one keeping the other."""
    reference = weakref.ref(loader)

    def weights(*, sizes: bool) -> Iterable[Size]:
        alive = reference()
        pools = () if alive is None else alive._pools()
        return [_size(each) for pool in pools for each in pool.executor.memory(sizes=sizes)]

    recorder.connect(
        sizes=partial(weights, sizes=True), tallies=partial(weights, sizes=False), counts=stats.counts
    )
    stats.report_to(recorder.event)
    weakref.finalize(loader, recorder.release)


def _sink() -> Path | None:
    """Where the environment asks for it. Not in a worker: a loader inside a dataset is part of what the outer one waits for."""
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
    """A value that is the default may have been given all the same: nobody can tell."""
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
"""Arguments whose recorded value is not the plain attribute."""


def note_start(recorder: Recorder, context: Any, asked: Any, reason: str) -> None:
    """How workers start is known when a pool is made; ``reason`` is why it is not as asked for, if it is not."""
    if context is not None:
        why = reason or ("given" if asked is not None else "the platform's default")
        recorder.options["start_method"] = Option(context.get_start_method(), why)


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value[:_TEXT])
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return repr(value)[:_TEXT]


class StepWriter:
    """Observes one iteration and writes a row for each part of a batch. On the thread that iterates; ``close`` is idempotent.

    For each batch the loop calls the hooks in this order: ``asked``; ``waiting`` and ``ready`` if it has to wait; ``planned``;
    ``opened`` or ``failed``. A wait that no batch ends, ends with ``gave_up``.

    ``parent``: the consumer makes the batches itself. ``batched``: a ticket has several indices. ``rows``: how many a batch has
    whose ticket does not say. ``lasting``: its workers stay.
    """

    def __init__(
        self, recorder: Recorder, step_buffer: StepBuffer, scheduler: Scheduler, *,
        parent: bool, batched: bool, rows: int, lasting: bool,
    ) -> None:  # fmt: skip
        self._recorder = recorder
        self._step_buffer = step_buffer
        self._lasting = lasting
        self._epochs_before = 0
        """Epochs that this iteration has gone through before (``prefetch_epochs``)."""
        self._asked_ns = self._got_ns = self._planned_ns = self._depth = self._ready_bytes = 0
        self._parent = parent
        self._batched = batched
        self._rows = rows
        self._page = recorder.page or _NO_PAGE
        """Its words tell others since when the consumer waits."""
        self._idle: IdleMeter | None = recorder.idle if isinstance(recorder.idle, IdleMeter) else idle_meter()
        """Looks whether the accelerator has work meanwhile; None: there is none."""
        reference = weakref.ref(scheduler)
        recorder.connect(
            window=lambda: None if (alive := reference()) is None else alive.window, idle=self._idle
        )

    def asked(self, scheduler: Scheduler) -> None:
        """The consumer asks for a batch."""
        self._asked_ns = self._got_ns = _clock()
        self._depth, self._ready_bytes = scheduler.ready, scheduler.ready_bytes

    def waiting(self, steps: int) -> None:
        """No batch is ready. The run page says since when, and after how many batches."""
        words = self._page.words
        words[page.STEPS] = steps
        words[page.ASKED_NS] = self._asked_ns
        if self._idle is not None:
            self._idle.asked()

    def ready(self) -> None:
        """The wait is over: a batch is ready."""
        self._page.words[page.ASKED_NS] = 0
        self._got_ns = _clock()
        if self._idle is not None:
            self._idle.given(self._got_ns - self._asked_ns)

    def gave_up(self, *, ended: bool) -> None:
        """The wait ended without a batch: there are no more (``ended``), or an exception came."""
        self._page.words[page.ASKED_NS] = 0
        self._stopped(ended=ended)

    def planned(self) -> None:
        """The batch is taken and new tasks are handed out."""
        self._planned_ns = _clock()

    def opened(self, deliver: m.Deliver) -> None:
        """The batch, or its error, is handed over now: write its rows. No part of it is ``Lost``."""
        asked_ns, got_ns, planned_ns = self._asked_ns, self._got_ns, self._planned_ns
        depth, nbytes = self._depth, self._ready_bytes
        ticket, results = deliver
        epoch, seq, rows = ticket.epoch + self._epochs_before, ticket.seq, ticket.rows or self._rows
        step_buffer, ready, count = self._step_buffer, got_ns == asked_ns, len(results)
        given_ns = _clock()
        late = False
        for result in results:
            _, attempt, part, worker, _, _, receipt, spans = result[:8]  # type: ignore[misc]  # one look, not six
            if self._parent:
                worker = -1
            pack_row(
                step_buffer.buffer, step_buffer.end, asked_ns, got_ns, planned_ns, given_ns, epoch, seq, part, attempt, worker,
                rows if count == 1 else (rows + part) // count, ready, depth, nbytes, receipt.nbytes, *spans,
            )  # fmt: skip
            if step_buffer.wrote(given_ns):
                late = True
            if spans.slow_ns > self._recorder.slow_floor_ns:
                self._note_slow(ticket, spans.slow_row, spans.slow_ns, worker)
        if late:
            step_buffer.recorded(given_ns, _clock())

    def failed(self, deliver: m.Deliver) -> None:
        """An error is handed over. A ticket whose worker died too often has no measurements."""
        if any(type(result) is m.Lost for result in deliver.results):
            self._stopped(ended=False)
        else:
            self.opened(deliver)

    def next_epoch(self) -> None:
        """The iteration goes on with another epoch (``prefetch_epochs``)."""
        self._epochs_before += 1

    def _stopped(self, *, ended: bool) -> None:
        self._recorder.stopped(self._asked_ns, _clock(), self._step_buffer.given_ns, ended=ended)

    def _note_slow(self, ticket: Ticket, row: int, ns: int, worker: int) -> None:
        indices = ticket.indices if self._batched else [ticket.indices]
        index = indices[row] if isinstance(indices, list | tuple) and 0 <= row < len(indices) else None
        self._recorder.slow(
            SlowestSample(_told(index), ns, worker, ticket.epoch + self._epochs_before, ticket.seq, row)
        )

    def staged(self, began_ns: int, ended_ns: int) -> None:
        """A stager copied the batch that was written last, into pinned memory for instance."""
        self._step_buffer.pinned(began_ns, ended_ns)

    def close(self) -> None:
        """The iteration is over."""
        self._recorder.end(self._step_buffer, lasting=self._lasting)


def _told(index: Any) -> int | str | None:
    """A dataset index as JSON can have it; the user's own kinds of index by their texts."""
    if index is None:
        return None
    try:
        if isinstance(index, str):
            return str(index[:_TEXT])
        number = operator.index(index)
        return int(number) if abs(number) < 1 << 63 else repr(number)[:_TEXT]
    except Exception:  # it is no number, or one of thousands of digits
        with suppress(Exception):  # of the user's own code
            return repr(index)[:_TEXT]
    return type(index).__name__


class _NoPage:
    """Stands for a run page that could not be made."""

    words: Any = [0] * page.WORDS


_NO_PAGE = _NoPage()
