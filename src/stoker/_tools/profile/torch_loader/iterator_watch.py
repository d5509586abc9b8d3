"""Watches one iterator of torch's loader in the parent, and writes rows of the record."""

from __future__ import annotations

import threading
import time
from typing import Any

from torch.utils.data._utils import fetch as torch_fetch

from stoker._record.attribution import PARENT
from stoker._record.run_page.page import ASKED_NS, GIVEN_NS, STEPS
from stoker._record.schema import SlowestSample, StepRow
from stoker._runtime.device.idle_meter import IdleMeter, idle_meter
from stoker._runtime.worker.cpu_meter import SingleTaskMeter
from stoker._tools.probes.batch_bytes import batch_bytes
from stoker._tools.profile.torch_loader.recorders import RecordedLoader
from stoker._tools.profile.torch_loader.task_clock import TaskClock, number_of

_clock = time.monotonic_ns
_FETCH = torch_fetch.__file__
INTERRUPTED = "interrupted"
"""The kind of the event when Ctrl-C, or its signal, ends a wait for a batch."""
AT_ONCE_NS = 200_000
"""A batch that came within this time had been ready, where the worker does not tell."""


class IteratorWatch:
    """Of one iterator; called on the thread that iterates, by the hooks of ``torch_loader``."""

    def __init__(self, account: RecordedLoader) -> None:
        self._account = account
        self._step_buffer = account.recorder.step_buffer()
        self._epoch = account.epoch()
        self._seq = 0
        self._asked_ns = 0
        self._rows = 0
        """Of the last batch; 0: not known."""
        self.weighs = account.recorder.sample_bytes is None
        """Whether the size of a sample is not known yet."""
        known = account.recorder.idle
        self._idle = known if isinstance(known, IdleMeter) else idle_meter()
        account.recorder.connect(idle=self._idle)

    def asked(self) -> None:
        """``next()`` was called."""
        raise NotImplementedError

    def given(self) -> None:
        """Note that the iterator returns a batch."""
        raise NotImplementedError

    def weigh(self, batch: Any) -> None:
        """Note how large a sample is, by one batch of each iterator whose rows are known."""
        if self._rows:
            self.weighs = False
            self._account.recorder.sample_bytes = batch_bytes(batch) // self._rows

    def failed(self, error: BaseException) -> None:
        """Note that the iterator raises: the end, an error of the dataset's, or what torch says of a worker that died."""
        page = self._account.recorder.page
        if page is not None:
            page.words[ASKED_NS] = 0
        ended = isinstance(error, StopIteration)
        given_ns = self._step_buffer.given_ns
        if self._asked_ns > given_ns:  # else the error was given in place of a batch
            self._account.recorder.stopped(self._asked_ns, _clock(), given_ns, ended=ended)
        if isinstance(error, KeyboardInterrupt):  # workers may die of it as well, and that tells nothing
            self._account.event(INTERRUPTED, self._place(error))
        elif not ended:
            self._account.event("worker_died" if self._has_dead() else "error", _in_short(error))

    def _waits(self, since_ns: int) -> None:
        """The consumer waits from now on: others are told, and it is looked whether an accelerator has work meanwhile."""
        page = self._account.recorder.page
        if page is not None:
            page.words[ASKED_NS] = since_ns
        if self._idle is not None:
            self._idle.asked()

    def _waited(self, ns: int, now_ns: int) -> None:
        """Count a wait that brought a batch."""
        page = self._account.recorder.page
        if page is not None:
            words = page.words
            words[ASKED_NS], words[GIVEN_NS] = 0, now_ns
            words[STEPS] += 1
        if self._idle is not None:
            self._idle.given(ns)

    def _not_known(self, asked_ns: int, given_ns: int, depth: int) -> None:
        """A batch came, and nobody knows from where."""
        self._step_buffer.write(
            StepRow(
                asked_ns=asked_ns, got_ns=given_ns, planned_ns=given_ns, given_ns=given_ns, epoch=self._epoch, seq=self._seq,
                part=0, attempt=0, worker=PARENT, rows=0, ready=int(given_ns - asked_ns < AT_ONCE_NS), depth=depth,
            )
        )  # fmt: skip
        self._seq += 1

    def _has_dead(self) -> bool:
        return False

    def _place(self, error: BaseException) -> str:
        """Where the batch is made that was waited for, in words: the worker, the index of the dataset. "" if not known."""
        return ""

    def opened(self, began_ns: int, ended_ns: int) -> None:
        """``iter()`` took this long."""
        self._account.recorder.opened(began_ns, ended_ns)

    def close(self) -> None:
        """The iterator is gone, or at its end. Idempotent."""
        self._account.recorder.end(self._step_buffer)

    def _slow(self, index: int, ns: int, worker: int, seq: int, row: int) -> None:
        recorder = self._account.recorder
        if ns > recorder.slow_floor_ns:
            recorder.slow(SlowestSample(index if index >= 0 else None, ns, worker, self._epoch, seq, row))


class WaitsWatch(IteratorWatch):
    """Of an iterator that we know nothing else of."""

    def asked(self) -> None:
        self._asked_ns = _clock()
        self._waits(self._asked_ns)

    def given(self) -> None:
        now_ns = _clock()
        self._waited(now_ns - self._asked_ns, now_ns)
        self._not_known(self._asked_ns, now_ns, 0)

    def again(self) -> None:
        """Begin another epoch."""
        self._epoch = self._account.epoch()
        self._seq = 0


class InlineWatch(IteratorWatch):
    """Without workers: the consumer makes the batches itself."""

    def __init__(self, account: RecordedLoader, iterator: Any) -> None:
        super().__init__(account)
        self.fetcher = iterator._dataset_fetcher
        self.collate_fn = self.fetcher.collate_fn
        self.clock = TaskClock(
            iterator._dataset, self.collate_fn, batched=getattr(self.fetcher, "auto_collation", True)
        )
        self._meter = SingleTaskMeter()
        self._thread = threading.get_ident()

    def asked(self) -> None:
        if self._thread != threading.get_ident():  # the account is that of the thread that opened it
            self._meter.close()
            self._meter, self._thread = SingleTaskMeter(), threading.get_ident()
        self._asked_ns = now_ns = _clock()
        self.clock.begin(now_ns)
        self._meter.began(now_ns)
        self._waits(now_ns)

    def planned(self, indices: Any) -> Any:
        """The sampler has given these. Returns them as torch's fetcher is to see them."""
        self.clock.begin(_clock())
        return self.clock.indices(indices)

    def failed(self, error: BaseException) -> None:
        if not isinstance(error, StopIteration | KeyboardInterrupt):
            self.given()  # the error, in place of its batch
        super().failed(error)

    def _place(self, error: BaseException) -> str:
        index = _index_in(error)
        return "" if index < 0 else f"the training process is on {in_words(index, 1)}"

    def given(self) -> None:
        clock = self.clock
        now_ns = _clock()
        self._waited(now_ns - self._asked_ns, now_ns)
        got_ns = clock.collated_ns or now_ns
        received_ns = clock.received_ns
        reading = self._meter.ended(self._asked_ns, got_ns)
        self._rows = clock.rows
        if clock.slow_ns:
            self._slow(clock.slow_index, clock.slow_ns, PARENT, self._seq, clock.slow_row)
        self._step_buffer.write(
            StepRow(
                asked_ns=self._asked_ns, got_ns=got_ns, planned_ns=got_ns, given_ns=now_ns, epoch=self._epoch, seq=self._seq,
                part=0, attempt=0, worker=PARENT, rows=clock.rows, ready=0, depth=0,
                dispatched_ns=received_ns, received_ns=received_ns, fetched_ns=clock.fetched_ns,
                collated_ns=clock.collated_ns, sent_ns=got_ns,
                cpu_ns=reading.cpu_ns, runq_ns=reading.runq_ns, metered_ns=reading.metered_ns,
                slow_row=clock.slow_row, slow_ns=clock.slow_ns,
            )
        )  # fmt: skip
        self._seq += 1

    def close(self) -> None:
        self._meter.close()
        super().close()


def in_words(index: int, rows: int) -> str:
    """An index of the dataset, or the batch that begins with it."""
    return (
        f"dataset index {index}"
        if rows <= 1
        else f"the batch of {rows} that begins with dataset index {index}"
    )


def _index_in(error: BaseException) -> int:
    """The index that torch's fetcher was on when something was raised below it; -1 where that cannot be told."""
    trace, below = error.__traceback__, False
    while trace is not None:
        code, found = trace.tb_frame.f_code, trace.tb_frame.f_locals
        if below and code.co_name == "__getitem__" and code.co_argcount > 1:
            return number_of(found.get(code.co_varnames[1]))
        below = below or code.co_filename == _FETCH
        if below and "idx" in found:
            return number_of(found["idx"])
        trace = trace.tb_next
    return -1


def _in_short(error: BaseException) -> str:
    """One line. What torch brings from a worker ends with the error itself, below the traceback."""
    lines = str(error).strip().splitlines() or [""]
    if len(lines) > 1 and lines[0].startswith("Caught "):
        return f"{lines[-1]} ({lines[0].rstrip('.')})"[:500]
    return f"{type(error).__name__}: {lines[0]}"[:500]
