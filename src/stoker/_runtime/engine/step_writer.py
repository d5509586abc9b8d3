"""The observer of the loop: it measures each batch and writes rows into the record's step buffer."""

from __future__ import annotations

import operator
import time
import weakref
from contextlib import suppress
from typing import Any

from stoker._record.recorder import Recorder
from stoker._record.run_page import page
from stoker._record.schema import SlowestSample
from stoker._record.step_buffer import LONG_WAIT_NS, STRETCH_ROWS, StepBuffer, pack_row, rest_ns
from stoker._runtime.device.idle_meter import IdleMeter, idle_meter
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker._runtime.scheduler.types import Ticket

_clock = time.monotonic_ns
_MAX_TEXT = 200
"""Characters that are kept of an index's text."""


class StepWriter:
    """Observes one iteration and writes a row for each part of a batch. On the thread that iterates.

    For each batch the loop calls the hooks in this order: ``asked``; ``waiting`` and ``ready`` if it has to wait; ``planned``;
    ``opened`` or ``failed``. A wait that no batch ends, ends with ``gave_up``.

    Where batches come very fast, it rests between stretches of rows (``rests_until_ns``). Meanwhile the loop calls ``counted`` once
    for each batch, and ``cut_short`` before the hooks of one that failed.

    ``parent``: the consumer makes the batches itself. ``batched``: a ticket has several indices. ``rows``: rows of a batch whose
    ticket has no number of rows. ``persistent``: the workers stay for the next iteration.
    ``to_device``: batches are copied to a device. ``complete``: every batch needs its row.
    """

    def __init__(
        self, recorder: Recorder, step_buffer: StepBuffer, scheduler: Scheduler, *,
        parent: bool, batched: bool, rows: int, persistent: bool, streams: bool = False,
        to_device: bool = False, complete: bool = False,
    ) -> None:  # fmt: skip
        self._recorder = recorder
        self._step_buffer = step_buffer
        self._persistent = persistent
        self._streams = streams
        self._epochs_before = 0
        """Epochs that this iteration has finished (``prefetch_epochs``)."""
        self._asked_ns = self._got_ns = self._planned_ns = self._depth = self._ready_bytes = 0
        self._staging_ns = 0
        self._to_device = to_device
        self._parent = parent
        self._batched = batched
        self._rows = rows
        self._page = recorder.page or _NO_PAGE
        """The run page. Its words tell other processes since when the consumer waits."""
        self._idle: IdleMeter | None = recorder.idle if isinstance(recorder.idle, IdleMeter) else idle_meter()
        """Measures whether the accelerator is idle during a wait; None without an accelerator."""
        self.rests_until_ns = 0
        """Until then batches are only counted; 0: each one gets its rows."""
        self._look_at = 0 if complete or self._idle is not None else step_buffer.end_of(STRETCH_ROWS)
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

    def gave_up(self, error: BaseException) -> None:
        """The wait ended without a batch: there are no more, or an exception came. A stream's end is an exception like others."""
        self._page.words[page.ASKED_NS] = 0
        self._stopped(ended=type(error) is StopIteration and not self._streams)

    def planned(self) -> None:
        """The batch is taken and new tasks are handed out. Time for its copy counts as if it came after that."""
        self._planned_ns = _clock() - self._staging_ns

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
        if step_buffer.end == self._look_at and (rest := rest_ns(step_buffer.span_ns(), step_buffer.rows)):
            step_buffer.rest()
            self.rests_until_ns = _clock() + rest
        elif late:
            step_buffer.recorded(given_ns, _clock())
        if self._staging_ns:
            if self._to_device:
                step_buffer.copy_ns += self._staging_ns
            else:
                step_buffer.pin_ns += self._staging_ns
            self._staging_ns = 0

    def waits(self, asked_ns: int) -> None:
        """While it rests: no batch is ready."""
        self._page.words[page.ASKED_NS] = asked_ns

    def counted(self, deliver: m.Deliver, asked_ns: int, *, ready: bool) -> None:
        """While it rests: the batch, asked for at that moment, is handed over now. A long wait gets its row."""
        if not ready:
            self._page.words[page.ASKED_NS] = 0
        given_ns = _clock()
        nbytes = 0
        for result in deliver.results:
            nbytes += result.receipt.nbytes  # type: ignore[union-attr]  # none is Lost
        if given_ns - asked_ns > LONG_WAIT_NS:
            self.cut_short(asked_ns)
            self._got_ns = self._planned_ns = given_ns
            self.opened(deliver)
            return
        quick = self._step_buffer.quick
        if quick is not None:
            quick.note(asked_ns, given_ns, rows=deliver.ticket.rows or self._rows, nbytes=nbytes, ready=ready)

    def cut_short(self, asked_ns: int) -> None:
        """The rest is over. The batch that was asked for at that moment gets its row."""
        self.rests_until_ns = 0
        self._step_buffer.rested()
        self._asked_ns = self._got_ns = self._planned_ns = asked_ns
        self._depth = self._ready_bytes = 0

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
        self._step_buffer.rested()
        self._recorder.stopped(self._asked_ns, _clock(), self._step_buffer.given_ns, ended=ended)

    def _note_slow(self, ticket: Ticket, row: int, ns: int, worker: int) -> None:
        indices = ticket.indices if self._batched else [ticket.indices]
        index = indices[row] if isinstance(indices, list | tuple) and 0 <= row < len(indices) else None
        self._recorder.slow(
            SlowestSample(
                _plain_index(index), ns, worker, ticket.epoch + self._epochs_before, ticket.seq, row
            )
        )

    def staging(self, staging_ns: int) -> None:
        """So long the consumer waited for the copy of the batch that is handed over next, or for its beginning."""
        self._staging_ns = staging_ns

    def staged(self, began_ns: int, ended_ns: int) -> None:
        """After the batch that was written last, the copies of later ones were begun. Then it was given."""
        if self._to_device:
            self._step_buffer.copied(began_ns, ended_ns)
        else:
            self._step_buffer.pinned(began_ns, ended_ns)

    def close(self) -> None:
        """The iteration is over."""
        self.rests_until_ns = 0
        self._step_buffer.rested()
        self._recorder.end(self._step_buffer, lasting=self._persistent)


def _plain_index(index: Any) -> int | str | None:
    """A dataset index as JSON can hold it. Indices that are no integers become text."""
    if index is None:
        return None
    try:
        if isinstance(index, str):
            return str(index[:_MAX_TEXT])
        number = operator.index(index)
        return int(number) if abs(number) < 1 << 63 else repr(number)[:_MAX_TEXT]
    except Exception:  # not a number, or one with thousands of digits
        with suppress(Exception):  # raised by the user's own class
            return repr(index)[:_MAX_TEXT]
    return type(index).__name__


class _NoPage:
    """Stands in for a run page that could not be made."""

    words: Any = [0] * page.WORDS


_NO_PAGE = _NoPage()
