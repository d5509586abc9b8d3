"""One recorder per loader. It turns the rows that iterations write into the live record, the run page and the journal.

    step_buffer.write ──(every thousand rows, or a second)──► RunningTotals ──► RunPage (stoker top)
                                                                     └──► Journal (every few seconds, where asked for)

All of it runs on the thread that iterates, except ``record``, which any thread may call.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from stoker._host.secrets import masked
from stoker._record.attribution import Array, Attribution
from stoker._record.instruments import Idle, is_ours
from stoker._record.journal import Journal
from stoker._record.live_objects import LiveObjects
from stoker._record.readings import machine
from stoker._record.readings.worker_usage import Size, WorkerUsage, used_ns
from stoker._record.run_identity import run_here
from stoker._record.run_page import page
from stoker._record.run_page.publisher import PagePublisher
from stoker._record.schema import (
    CacheUse,
    Event,
    LoaderRecord,
    Machine,
    Option,
    ReceiptSummary,
    RunRecord,
    SlowestSample,
)
from stoker._record.step_buffer import StepBuffer
from stoker._record.totals import RunningTotals, named, table
from stoker.arguments import executor_kind

_log = logging.getLogger("stoker")
_EVENTS = 1000
_REASON = 2000
"""Events that are kept, and characters of their reasons."""

_JOURNAL_NS = 5_000_000_000
_JOURNAL_ROWS = 512
"""Rows that one line of a journal has at most."""
_LOAD_NS = 1_000_000_000
_MANY_ROWS = 256
_FOLD_NS = 1_000_000_000
"""More rows than this within this time are not all folded: it takes a microsecond a row, which a loader of 500 batches a second and
less can spare."""

_live: LiveObjects[Recorder] = LiveObjects()
_numbers = iter(range(1 << 62))


def live() -> list[Recorder]:
    """Return the recorders of this process that are not closed. Any thread."""
    return [each for each in _live.all() if not each.closed]


class Recorder:
    """Keeps the record of one loader. If an instrument fails, it is unplugged with its reason, and the loader goes on.

    A ``quiet`` recorder has no page: its owner reads ``since``.
    """

    def __init__(
        self,
        *,
        name: str,
        engine: str,
        executor: str,
        dataset: str,
        site: str | None = None,
        options: dict[str, Option] | None = None,
        sink: Path | None = None,
        quiet: bool = False,
        samples: int | None = None,
    ) -> None:
        self.name = name.encode(errors="replace").decode()  # whoever shows it may know no half characters
        self.engine, self.executor, self.dataset, self.site = engine, executor, dataset, site
        self.options = options if options is not None else {}
        self.samples = samples
        self.sample_bytes: int | None = None
        """Set by who knows the size of a sample; else it is that of all batches, divided by their rows."""
        self.closed = False
        self._released = False
        self.window: Callable[[], int | None] | None = None
        """Asks the iteration under way how many tickets may be planned and not taken."""
        self.counts: Callable[[], dict[str, int]] | None = None
        """Asks for further counts by their names in ``Totals``."""
        self.sizes: Callable[[], Iterable[Size]] | None = None
        """Weighs the workers. Without it they are weighed by their pids."""
        self.tallies: Callable[[], Iterable[Size]] | None = None
        """The same without sizes, but with threads and their CPU time: that costs next to nothing."""
        self.receipts: Callable[[], list[ReceiptSummary]] | None = None
        """Asks for the receipts of the last epochs."""
        self.cache: Callable[[], CacheUse | None] | None = None
        """Asks what sample caches did; the answer is None without a cache."""
        self.idle: Idle | None = None
        """Tells how much of the waiting left the accelerator at work, where there is one."""
        self.shown = PagePublisher()
        self._sink = sink
        self._lock = threading.RLock()
        self._step_buffers: list[StepBuffer] = []
        self.quiet = quiet
        self._reset()
        if not quiet:
            _live.add(self)

    def connect(
        self,
        *,
        window: Callable[[], int | None] | None = None,
        counts: Callable[[], dict[str, int]] | None = None,
        sizes: Callable[[], Iterable[Size]] | None = None,
        tallies: Callable[[], Iterable[Size]] | None = None,
        idle: Idle | None = None,
        receipts: Callable[[], list[ReceiptSummary]] | None = None,
        cache: Callable[[], CacheUse | None] | None = None,
    ) -> None:
        """Replace the sources of facts. One that is not given stays."""
        self.window = window or self.window
        self.counts = counts or self.counts
        self.sizes = sizes or self.sizes
        self.tallies = tallies or self.tallies
        self.idle = idle or self.idle
        self.receipts = receipts or self.receipts
        self.cache = cache or self.cache

    def _reset(self) -> None:
        """Start an empty record in this process."""
        self.run = run_here()
        now_ns = self.run.began_ns
        self._running_totals = RunningTotals(now_ns)
        self.unplugged: str | None = None
        """Why a part of the record is missing; None: none is."""
        self._begun = False
        self._events: deque[Event] = deque(maxlen=_EVENTS)
        self._dropped = 0
        self.slow_floor_ns = 0
        """A sample slower than this is one of the slowest."""
        self._deepest = 0
        self._dials: machine.CounterReader | None = None
        self._began: machine.Counters | None = None
        self._now: machine.Counters | None = None
        self._load_due_ns = self._journal_due_ns = self._folded_ns = 0
        self._journal_gap_ns = 500_000_000
        self._journal: Journal | None = None
        self._asked_for_journal = False
        self._written = self._quick_written = self._appended_ns = 0
        self._worker_usage = WorkerUsage()
        self._apart_ns = 0
        """Time of the last reading of workers, which is part of the wait that ends with them."""

    def _open_journal(self) -> None:
        """Open the journal. If a folder is given, each loader and process has a file of its own in it."""
        sink = self._sink
        if sink is not None:
            named = sink.suffix in (".json", ".jsonl")
            self._journal = Journal(sink if named else sink / f"{os.getpid()}-{next(_numbers)}.jsonl")

    @property
    def receipt_path(self) -> Path | None:
        """Return the file beside the journal for receipts; None without a journal."""
        return None if self._journal is None else self._journal.path.with_suffix(".receipt")

    # Written down while it goes

    def opened(self, began_ns: int, ended_ns: int) -> None:
        """Count one call of ``iter()``. On the thread that iterates."""
        self._guarded(partial(self._opened, began_ns, ended_ns))

    def _opened(self, began_ns: int, ended_ns: int) -> None:
        with self._lock:
            running_totals = self._running_totals
            self._apart_ns = 0
            if not running_totals.totals.epochs:
                shift_ns = began_ns - self.run.began_ns
                self.run.began_ns = running_totals.began_ns = began_ns
                self.run.began_unix_ns += shift_ns
            running_totals.opened(began_ns, ended_ns)

    def _begin(self) -> None:
        self._read_load()
        self.shown.begin()
        self._show(None, time.monotonic_ns())  # who it is: the first batch may be long in coming

    def after_fork(self) -> None:
        """Start an empty record in a forked child, with a new lock: a thread of the parent may hold the old one."""
        self._lock = threading.RLock()
        self.shown = PagePublisher()
        self._step_buffers.clear()
        self._reset()

    def stopped(self, began_ns: int, ended_ns: int, given_ns: int = 0, *, ended: bool = True) -> None:
        """Count a wait that brought no batch: the end of an epoch, or an error (not ``ended``). On the thread that iterates."""
        stage, cause = ("start", "start_up") if ended else ("fetch", "unknown")
        with self._lock:
            weighed_ns, self._apart_ns = ended_ns - min(self._apart_ns, ended_ns - began_ns), 0
            self._guarded(partial(self._running_totals.stopped, began_ns, weighed_ns, stage, cause, given_ns))
            self._guarded(partial(self._running_totals.stopped, weighed_ns, ended_ns, "record", "parent"))

    def leaving(self) -> None:
        """Read the workers' CPU and memory use a last time before they end. On the thread that iterates."""
        self._guarded(self._leaving)

    def _leaving(self) -> None:
        with self._lock:
            self._tally(self._running_totals)
            if self._journal is not None:
                self._apart_ns += self._worker_usage.look(self._running_totals, last=True)

    def step_buffer(self, attribution: Attribution | None = None) -> StepBuffer:
        """Return a buffer for one iteration. ``attribution`` knows its pool's workers; new workers need a new one."""
        if attribution is None:
            inline = not executor_kind(self.executor).workers
            attribution = Attribution(workers=_workers(self.options), inline=inline)
        if not self._asked_for_journal:  # not before: forked workers have recorders that nobody uses
            self._asked_for_journal = True
            self._guarded(self._open_journal)
        if self.page is None and not self._begun and not self.quiet:
            self._begun = True
            self._guarded(self._begin)
        with self._lock:
            for step_buffer in self._step_buffers:
                if step_buffer.closed:
                    if step_buffer.attribution is not attribution and not (
                        step_buffer.attribution.inline and attribution.inline
                    ):
                        self._guarded(partial(self._fold, step_buffer, final=True), step_buffer)
                        step_buffer.attribution = attribution
                    step_buffer.closed = False
                    return step_buffer
            step_buffer = StepBuffer(self, attribution)
            if self._journal is None:  # a file has the first batch at once; whoever only looks can wait
                step_buffer.due_ns = time.monotonic_ns() + page.PERIOD_NS
            self._step_buffers.append(step_buffer)
        return step_buffer

    def end(self, step_buffer: StepBuffer, *, lasting: bool = False) -> None:
        """Take back the buffer of an iteration that is over. On the thread that iterated. ``lasting``: the workers stay.

        It folds nothing, because the next epoch should begin at once.
        """
        if step_buffer.closed:
            return
        step_buffer.closed = True
        if not lasting:
            self.leaving()
        with self._lock:
            if all(each.closed for each in self._step_buffers):
                self.shown.rest()
                self._begun = self.page is not None or self.unplugged is not None
        if self._released:
            self.release()
        elif self._journal is not None and time.monotonic_ns() >= self._appended_ns + page.PERIOD_NS:
            self._guarded(self._write_down)

    def fold(self, step_buffer: StepBuffer) -> None:
        """Add the rows of a buffer that is full."""
        self._guarded(partial(self._fold, step_buffer, final=False), step_buffer)

    def rest(self, step_buffer: StepBuffer) -> None:
        """Let the next steps go without rows. Add the rows before them."""
        self._guarded(partial(self._fold, step_buffer, final=True, skims=True), step_buffer)

    def rested(self, step_buffer: StepBuffer) -> None:
        """Give steps rows again. Add the steps that got none."""
        self._guarded(partial(self._count_quick, step_buffer), step_buffer)

    def _count_quick(self, step_buffer: StepBuffer) -> None:
        with self._lock:
            quick, step_buffer.quick = step_buffer.quick, None
            if quick is not None:
                step_buffer.last = self._running_totals.count_quick(quick, step_buffer.last)

    def tick(self, step_buffer: StepBuffer, now_ns: int) -> None:
        """Update the run page and the journal, as they are due."""
        self._guarded(partial(self._tick, step_buffer, now_ns), step_buffer)

    def slow(self, slow: SlowestSample) -> None:
        """Note a sample slower than ``slow_floor_ns``."""
        self._guarded(partial(self._slow, slow))

    def _slow(self, slow: SlowestSample) -> None:
        with self._lock:
            self.slow_floor_ns = self._running_totals.note_slow(slow)

    @property
    def page(self) -> page.RunPage | None:
        """Return the run page that other processes see; None: there is none."""
        return self.shown.page

    @property
    def page_inode(self) -> int:
        """Return the inode by which others find the run page; 0: there is none."""
        return 0 if self.page is None else self.page.inode

    def event(self, kind: str, reason: str) -> None:
        """Note an event. Any thread."""
        with self._lock:
            if len(self._events) == _EVENTS:
                self._dropped += 1
            now_ns = time.monotonic_ns()
            self._events.append(Event(max(0, now_ns - self.run.began_ns), kind, masked(reason[:_REASON])))
            counts = self.counts() if self.counts is not None else {}
            self._guarded(partial(self.shown.event, self._events[-1], self.run, counts, now_ns))

    def _note_window(self, before: int | None, now: int | None) -> None:
        """Note once, with the reason, that we made the window deeper than ever."""
        if before is not None and now is not None and now > max(before, self._deepest):
            self._deepest = now
            reason = f"the window deepened from {before} to {now} batches: the consumer waited while a worker had nothing to do"
            self.event("window", reason)
            with suppress(Exception):  # of a handler of the user's
                _log.info("%s: %s", self.name, reason)

    def resized(self, option: Option, window: int) -> None:
        """Take over another number of workers, or another window, whose event is noted already. On the thread that iterates."""
        with self._lock:
            self.options["num_workers"] = option
            self._deepest = max(self._deepest, window)

    def worker(self, worker: int, *, pid: int) -> None:
        """Make a worker known by its pid."""
        with self._lock:
            self._worker_usage.pids[worker] = pid
            self._running_totals.worker(worker).pid = pid

    # Told to others

    def record(self, *, steps: bool = True, weigh: bool = True) -> RunRecord:
        """Return the record so far. Any thread. It reads each worker's memory, which takes some milliseconds per worker."""
        found: list[RunRecord] = []
        self._guarded(lambda: found.append(self._record(steps=steps, weigh=weigh)))
        if found:
            return found[0]
        broken = LoaderRecord(self.name, self.engine, self.executor, self.dataset, self.site)
        broken.events, broken.events_dropped = list(self._events), self._dropped
        return RunRecord(self.run, Machine(), [broken])

    def _record(self, *, steps: bool, weigh: bool) -> RunRecord:
        sizes = self._sizes() if weigh else []
        with self._lock:
            running_totals = self._ahead()
            self._read_load()
            self._tally(running_totals)
            self._worker_usage.note(sizes, running_totals)
            loader = self._loader(running_totals)
            loader.memory = self._worker_usage.memory.columns(running_totals.began_ns)
            if steps:
                loader.steps = table(running_totals.rows(), running_totals.began_ns)
                loader.steps_dropped = running_totals.dropped
            return RunRecord(self.run, machine.known(), [loader])

    def since(self, at_ns: int) -> Array | None:
        """Return the rows that are kept of batches asked for after ``at_ns``, in the order of delivery.

        None while several iterators write, and after the last one.
        """
        with self._lock:
            if (
                self.unplugged is not None
                or sum(not step_buffer.closed for step_buffer in self._step_buffers) > 1
            ):
                return None
            rows = np.concatenate(
                [self._running_totals.rows(), *(step_buffer.pending() for step_buffer in self._step_buffers)]
            )
        return rows[rows[:, 0] >= at_ns]

    def _ahead(self) -> RunningTotals:
        """Return the sums with the rows that are held back."""
        running_totals = self._running_totals.copy()
        for step_buffer in self._step_buffers:
            last = step_buffer.last
            if step_buffer.quick is not None:
                last = running_totals.count_quick(step_buffer.quick, last)
            running_totals.add(step_buffer.pending(), step_buffer.attribution.copy(), last)
            running_totals.split_open_stage(step_buffer.pin_ns, step_buffer.record_ns, step_buffer.copy_ns)
        return running_totals

    def release(self) -> None:
        """End the recorder, because its loader is gone. If an iterator is still in use, end with that."""
        self._released = True
        if all(step_buffer.closed for step_buffer in self._step_buffers):
            self.close()

    def close(self) -> None:
        """Write the end, because no iterator is left or the process ends. Idempotent; does nothing in a forked child."""
        if self.closed:
            return
        self.closed = True
        if self.run.pid == os.getpid():
            self.run.ended = True
            self._guarded(self._write_final_record)
        self.shown.close()
        # Nothing asks others any more, nor they it: without a cycle it goes without a garbage collection.
        self.window = self.counts = self.sizes = self.tallies = self.receipts = self.cache = None
        self._step_buffers.clear()

    def _write_final_record(self) -> None:
        with self._lock:
            for step_buffer in self._step_buffers:
                self._fold(step_buffer, final=True)
            if self._journal is not None and self._running_totals.totals.epochs:
                self._read_load()
                self._worker_usage.look(self._running_totals, last=True)
                self._append(self._journal)

    def _guarded(self, what: Callable[[], None], step_buffer: StepBuffer | None = None) -> None:
        try:
            what()
        except Exception as error:
            if not is_ours(error):
                raise  # a signal handler's, for the script
            if step_buffer is not None:
                step_buffer.end = 0
                step_buffer.due_ns = 1 << 62
            self._unplug(f"{type(error).__name__}: {error}")

    def _unplug(self, why: str) -> None:
        """Unplug the instrument. The record and the log tell of the first failure."""
        if self.unplugged is None:
            self.unplugged = why
            reason = f"a part of this record is missing from here on: {why}"
            self._events.append(Event(max(0, time.monotonic_ns() - self.run.began_ns), "unplugged", reason))
            with suppress(Exception):  # of a handler of the user's
                _log.warning("%s: %s", self.name, reason)

    def _fold(self, step_buffer: StepBuffer, *, final: bool, skims: bool = False) -> None:
        with self._lock:
            self._count_quick(step_buffer)
            rows = step_buffer.take(final=final)
            pin_ns, record_ns, copy_ns = step_buffer.pin_ns, step_buffer.record_ns, step_buffer.copy_ns
            step_buffer.pin_ns = step_buffer.record_ns = step_buffer.copy_ns = 0
            if (skims or not final) and self._skims(step_buffer, rows):
                step_buffer.last = self._running_totals.skim(
                    rows, step_buffer.last, pin_ns + record_ns + copy_ns
                )
            else:
                self._folded_ns = time.monotonic_ns()
                step_buffer.last = self._running_totals.add(rows, step_buffer.attribution, step_buffer.last)
            self._running_totals.split_open_stage(pin_ns, record_ns, copy_ns)

    def _skims(self, step_buffer: StepBuffer, rows: Array) -> bool:
        """Whether these rows may be skimmed: there are very many, their workers are known, and others were just read closely."""
        return (
            len(rows) >= _MANY_ROWS
            and time.monotonic_ns() < self._folded_ns + _FOLD_NS
            and bool(self._running_totals.usual)
            and step_buffer.attribution.knows(rows)
        )

    def _tick(self, step_buffer: StepBuffer, now_ns: int) -> None:
        step_buffer.due_ns = now_ns + page.PERIOD_NS
        with self._lock:
            self._fold(step_buffer, final=False)
            self._tally(self._running_totals)
            if now_ns >= self._load_due_ns:
                self._load_due_ns = now_ns + _LOAD_NS
                self._read_load()
            self._guarded(partial(self._show, step_buffer, now_ns))
            if self._journal is not None:  # nobody else asks how that went on
                self._worker_usage.look(self._running_totals)
            self._worker_usage.glance(self._running_totals)
            if self._journal is not None and now_ns >= self._journal_due_ns:
                self._journal_due_ns = now_ns + self._journal_gap_ns
                self._journal_gap_ns = min(2 * self._journal_gap_ns, _JOURNAL_NS)
                # The disk may have room again at the next.
                self._guarded(partial(self._append, self._journal))

    def _show(self, step_buffer: StepBuffer | None, now_ns: int) -> None:
        """Show the sums on the run page, with the rows that are held back."""
        loader, last = self._loader(self._running_totals), dict[str, int]()
        if step_buffer is not None and step_buffer.rows:
            pending = step_buffer.pending()
            loader.totals = self._running_totals.totals_with(pending, step_buffer.last)
            last = named(pending[-1])
        self.shown.write(loader, self.run, last, at_ns=now_ns, workers=_workers(self.options))

    def _write_down(self) -> None:
        with self._lock:
            if self._journal is not None:
                self._append(self._journal)

    def _append(self, journal: Journal) -> None:
        """Append a line, or write the whole journal anew if it has too many."""
        loader = self._loader(self._ahead())  # what is held back counts: the next line may never come
        loader.memory = self._worker_usage.memory.columns(self._running_totals.began_ns)
        rows = self._running_totals.rows()
        if journal.full:
            loader.steps, loader.steps_dropped = (
                table(rows, self._running_totals.began_ns),
                self._running_totals.dropped,
            )
            journal.rewrite(RunRecord(self.run, machine.known(), [loader]))
        else:
            fresh = rows[len(rows) - min(len(rows), self._running_totals.added - self._written) :]
            missing = max(0, self._running_totals.added - self._written - _JOURNAL_ROWS)
            loader.steps_dropped = missing + self._running_totals.quick - self._quick_written
            loader.steps = table(fresh[-_JOURNAL_ROWS:], self._running_totals.began_ns)
            journal.append(RunRecord(self.run, machine.known(), [loader]))
        self._written, self._quick_written = self._running_totals.added, self._running_totals.quick
        self._appended_ns = time.monotonic_ns()

    def _loader(self, running_totals: RunningTotals) -> LoaderRecord:
        """Return the record of the loader without its steps."""
        totals = running_totals.totals
        if self.window is not None:
            before, totals.window = totals.window, self.window() or totals.window
            self._note_window(before, totals.window)
        if self.idle is not None and self.idle.timed_ns:
            totals.hidden_ns = self.idle.hidden_ns
        if self.counts is not None:
            for name, count in self.counts().items():
                setattr(totals, name, count)
        loader = LoaderRecord(self.name, self.engine, self.executor, self.dataset, self.site, self.options)
        loader.samples, loader.sample_bytes = self.samples, self.sample_bytes
        if loader.sample_bytes is None and totals.bytes is not None and totals.rows:
            loader.sample_bytes = totals.bytes // totals.rows
        loader.totals = totals
        workers = [running_totals.workers[number] for number in sorted(running_totals.workers)]
        loader.workers = workers
        if self._began is not None and self._now is not None:
            # Threads' time is the parent's already.
            apart = workers if loader.kind.processes else []
            loader.load = self._now.since(self._began, sum(used_ns(each) for each in apart))
        loader.blame = running_totals.blame()
        loader.concurrency = running_totals.by_concurrency()
        loader.slowest = running_totals.slowest
        loader.events, loader.events_dropped = list(self._events), self._dropped
        loader.periods = running_totals.periods
        if self.receipts is not None:
            loader.receipts = self.receipts()
        if self.cache is not None:
            loader.cache = self.cache()
        return loader

    def _read_load(self) -> None:
        if self._dials is None:
            self._dials = machine.CounterReader()
        self._now = self._dials.read()
        if self._began is None:
            self._began = self._now

    def _tally(self, running_totals: RunningTotals) -> None:
        if self.tallies is not None:
            self._worker_usage.tally(self.tallies(), running_totals)

    def _sizes(self) -> list[Size]:
        return list(self.sizes() if self.sizes is not None else self._worker_usage.by_pid())


def _workers(options: dict[str, Option]) -> int:
    found = options.get("num_workers")
    return found.value if found is not None and isinstance(found.value, int) else 0


def _after_fork() -> None:
    """Start empty records in a forked child: the page and the file belong to the parent."""
    for each in _live.all():
        each.after_fork()


def _close_all() -> None:
    for each in live():
        each.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_close_all)
