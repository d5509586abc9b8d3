"""Makes batches for every executor: seeds, fetches and collates. User code of datasets runs only here."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stoker._runtime.protocol.status_page import (
    COLLATING,
    EPOCH,
    INDEX,
    NO_ROW,
    PHASE,
    ROW,
    WORDS,
    index_word,
)
from stoker._runtime.protocol.thread_context import SlotMemory, current
from stoker._runtime.protocol.worker_spec import BatchOrder, Resume, WorkerSpec
from stoker._runtime.scheduler.row_ranges import row_ranges
from stoker._runtime.worker.bad_samples import (
    TOGETHER,
    BadSample,
    BadSampleFilter,
    EmptyBatch,
    Envelope,
    FetchError,
)
from stoker._runtime.worker.cache_meter import CacheMeter
from stoker._runtime.worker.collate_errors import explain_collation, note_index, note_indices, silent_end
from stoker._runtime.worker.fetch import Fetcher, fetcher_for
from stoker._runtime.worker.fetch_threads import FetchThreads
from stoker._runtime.worker.rng.per_sample import SampleRng
from stoker._runtime.worker.rng.rng_use import RngUse
from stoker._runtime.worker.rng.seeder import Seeder
from stoker._runtime.worker.stream import Abandoned, SampleStream

if TYPE_CHECKING:
    from stoker._runtime.worker.split_batches import PartRows


@dataclass(slots=True)
class StatusView:
    """The words through which a batch maker shows its row and learns that its epoch is over. A status page, or plain lists.

    ``here[ROW]`` is written before every row, and ``here[PHASE]`` before collation. When ``there[EPOCH]`` differs from the
    order's epoch, the maker gives up. Without ``there``, it never does.
    """

    here: Any
    there: Any = None


_SLOW_ROW_NS = 20_000
"""Rows faster than this look for the end of the epoch once a range. A look per row would cost a fifth of a small batch."""

_clock = time.monotonic_ns


class BatchMaker:
    """Makes the batches of one worker from its orders. Used by one thread.

    ``shared`` says that other threads draw from the same generators. ``inline`` asks to restore the generators after each
    batch. ``keeps_state`` asks to send the state of a stateful iterable dataset with every batch. ``resume`` is the state that
    a lost worker left. Samples of a map-style dataset come from ``fetcher``; the default is ``fetcher_for(spec)``.
    ``watch`` is the executor's status view; without it, progress is not shown.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        worker: int,
        *,
        shared: bool = False,
        inline: bool = False,
        keeps_state: bool = False,
        resume: Resume | None = None,
        fetcher: Fetcher | None = None,
        watch: StatusView | None = None,
    ) -> None:
        self.spec = spec
        self.worker = worker
        self._watch = StatusView([0] * WORDS) if watch is None else watch
        self._sample_rng = SampleRng(spec, worker, self._watch.here)
        self._cache_meter = CacheMeter()
        self.seeder = _inline_seeder(spec) if inline else Seeder(spec, worker, shared=shared)
        self._by_sample = self.seeder.by_sample
        self._singly = True
        self._plain = False
        self._bare = False
        self._fetcher = fetcher_for(spec) if fetcher is None else fetcher
        self._getitems = None if spec.iterable else self._fetcher.bind_batched()
        self._bad: list[BadSample] = []
        self._bad_filter: BadSampleFilter | None = None
        if spec.on_bad_sample != "raise":
            together = self._getitems if spec.auto_collation else None
            self._bad_filter = BadSampleFilter(
                spec.on_bad_sample, self._fetcher.bind, together, self._before_row, self._reseed
            )
            self._bad = self._bad_filter.bad
        self._stream: SampleStream | None = None
        if spec.iterable:
            bad = None if self._bad_filter is None else self._bad
            self._stream = SampleStream(
                spec, worker, self._before_pull, bad, keeps_state=keeps_state, resume=resume, shared=shared
            )
        self._tells = self._stream is not None or self._bad_filter is not None
        self._metered = spec.metered
        self._fetched_ns = 0
        self._slow_row = -1
        self._slow_ns = 0
        self._row_began = (NO_ROW, 0)
        """With a bad-sample filter: the row that is being fetched, and its start time."""
        self.fetch_threads: FetchThreads | None = None
        """The threads that fetch rows; None where this thread fetches them."""
        batched = spec.auto_collation and not spec.iterable and self._getitems is None
        if spec.threads > 1 and batched and not (shared or inline):
            self.fetch_threads = FetchThreads(spec, worker, self.seeder, self._watch)
        self._checks_rng_use = spec.warns_of_shared_rng and worker == 0

    def unwatch(self) -> None:
        """Nobody asks which row is being made. Where nothing is seeded either, rows are fetched in one go."""
        self._plain = not self.seeder.seeds and not self._tells
        self._bare = not self.seeder.draws and self.spec.auto_collation
        # Looking up plain values is quick; if it is not, the first batch shows it.
        self._singly = not self._bare

    def close(self) -> None:
        """End the fetch threads. A worker process need not call it: its threads end with it. Idempotent."""
        if self.fetch_threads is not None:
            self.fetch_threads.close()

    def resume_at(self, resume: Resume) -> None:
        """Start the stream of an iterable dataset at this state, in the epoch that the state names."""
        if self._stream is not None:
            self._stream.resume_at(resume)

    def measured(self, began_ns: int) -> tuple[int, int, int]:
        """When the rows of the task that began then were fetched, the slowest, its duration; (0, -1, 0): it was not measured."""
        if self._fetched_ns < began_ns:  # it failed earlier, and the times are of another task
            return 0, -1, 0
        return self._fetched_ns, self._slow_row, self._slow_ns

    def make(self, order: BatchOrder, slot: SlotMemory | None) -> Any:
        """Return the batch of a whole ticket, in an Envelope if there are facts for the parent. Tensors are stacked in ``slot``."""
        if self._bare:
            return self._make_barely(order)
        if not self._tells:
            return self._make(order, slot)
        self._bad.clear()
        try:
            batch = self._make(order, slot)
        except EmptyBatch:
            return Envelope(None, tuple(self._bad), empty=True)
        resume = self._stream.state() if self._stream is not None else None
        return Envelope(batch, tuple(self._bad), resume=resume) if self._bad or resume else batch

    @property
    def plain(self) -> bool:
        """Whether ``make_plainly`` can make the next batch: no code of the user's runs, and rows are quick."""
        return self._bare and self._plain and not self._singly and self._getitems is None

    def make_plainly(self, indices: Any) -> Any:
        """The batch of these indices, without an order. As ``make`` for quick rows, where ``plain``."""
        indices = _listed(indices)
        self._slow_row, self._slow_ns = -1, 0
        samples = self._fetch_plainly(indices)
        return collate_samples(self.spec.collate_fn, samples, indices, own=self.spec.own_collate)

    def _make_barely(self, order: BatchOrder) -> Any:
        """The batch where no code of the user's runs: nothing draws, asks for a generator or counts."""
        indices = _listed(order.indices)
        return self._collate(self._rows(order, indices, 0, len(indices)), indices)

    def _make(self, order: BatchOrder, slot: SlotMemory | None) -> Any:
        kept = self.seeder.kept()
        with kept, kept:
            outer = current.slot, current.sample_rng  # a dataset may iterate a loader of its own
            try:
                current.slot, current.sample_rng = slot, self._sample_rng
                self._sample_rng.begin(order)
                self._cache_meter.began()
                if self._stream is not None:
                    return self._collate(self._stream.batch(order), None)
                if not self.spec.auto_collation:
                    return self._convert(self._one(order))
                indices = _listed(order.indices)
                samples = self._rows(order, indices, 0, len(indices))
                if self._bad:
                    indices = _without_bad(indices, samples, self._bad)
                return self._collate(samples, indices)
            finally:
                current.slot, current.sample_rng = outer
                self._cache_meter.ended(self._watch.here)
                self._sample_rng.end()

    def make_part(self, order: BatchOrder, slot: Any, agreed: int) -> PartRows:
        """Make the rows ``start`` to ``stop`` of a ticket, in the shared slot if their layout is the agreed one."""
        from stoker._runtime.worker.split_batches import (  # many workers never split: 2 ms to import
            PartRows,
            collate_part,
        )

        indices = _listed(order.indices)
        self._bad.clear()
        outer, current.sample_rng = current.sample_rng, self._sample_rng
        self._sample_rng.begin(order)
        self._cache_meter.began()
        try:
            samples = self._rows(order, indices, order.start, order.stop)
        finally:
            self._cache_meter.ended(self._watch.here)
            self._sample_rng.end()
            current.sample_rng = outer
        self._collating()
        if len(samples) < order.stop - order.start:  # some were skipped, so rows would land in wrong places
            return PartRows(order.start, order.stop, 0, list(samples), bad=tuple(self._bad))
        rows = collate_part(samples, slot, start=order.start, rows=order.rows, agreed=agreed)
        return replace(rows, bad=tuple(self._bad)) if self._bad else rows

    # Map-style datasets

    def _rows(self, order: BatchOrder, indices: Sequence[Any], start: int, stop: int) -> list[Any]:
        """Fetch rows of the batch. ``indices`` holds only those from ``start`` to ``stop``."""
        rows = order.rows or len(indices)
        self._slow_row, self._slow_ns = -1, 0
        if self._bad_filter is not None:
            return self._filtered_rows(order, self._bad_filter, indices, start, stop)
        if self._getitems is not None:
            self.seeder.whole(order)
            self._at_row(order, NO_ROW)
            try:
                return self._getitems(order.indices)  # type: ignore[no-any-return]  # as the sampler gave them
            except StopIteration as error:
                raise silent_end(indices) from error
            except Exception as error:
                note_indices(error, indices)
                raise
        if self.fetch_threads is not None and _can_share(order, indices):
            outcomes = self._at_once(self.fetch_threads, order, indices, start)
            if outcomes is not None:
                return outcomes
        if self._plain and not self._singly:
            return self._fetch_plainly(indices)
        samples: list[Any] = []
        began_ns = _clock()
        try:
            for number, (first, last) in enumerate(row_ranges(rows)):
                if last > start and first < stop:
                    self.seeder.range(order, number)
                    chunk = indices[first - start : last - start]
                    if self._singly:
                        self._fetch_singly(order, chunk, first, samples)
                    else:
                        self._fetch_quickly(order, chunk, first, samples)
        except StopIteration as error:
            raise silent_end(indices[len(samples)]) from error
        except Abandoned:
            raise
        except Exception as error:
            note_index(error, indices[len(samples)])
            raise
        if not self._by_sample:
            self._singly = _clock() - began_ns > _SLOW_ROW_NS * len(samples)
        return samples

    def _at_once(
        self,
        fetch_threads: FetchThreads,
        order: BatchOrder,
        indices: Sequence[Any],
        start: int,
        *,
        collect_errors: bool = False,
    ) -> list[Any] | None:
        """Fetch rows on several threads; None if no thread could start. With ``collect_errors``, errors are among the outcomes."""
        ranges = row_ranges(order.rows or len(indices))
        self.seeder.rows(order, start, next(n for n, (_, last) in enumerate(ranges) if last > start))
        rng_use = RngUse() if self._checks_rng_use else None
        job = fetch_threads.fetch(order, self._fetcher.bind(), indices, start, collect_errors=collect_errors)
        if job is None:
            return None
        if rng_use is not None:
            self._checks_rng_use = False
            rng_use.warn_if_drawn()
        self._slow_row, self._slow_ns = job.slow_row, job.slow_ns
        if job.stopped:
            place = next(place for place, found in enumerate(job.outcomes) if _ends(found, collect_errors))
            error, job.outcomes = job.outcomes[place].error, []
            try:
                if isinstance(error, StopIteration):
                    raise silent_end(indices[place]) from error
                if isinstance(error, Exception):
                    note_index(error, indices[place])
                raise error
            finally:
                del error  # the error refers to this frame
        return job.outcomes

    def _fetch_plainly(self, indices: Sequence[Any]) -> list[Any]:
        """Fetch quick rows that nobody watches and that draw nothing, as torch does."""
        fetch, left, began_ns = self._fetcher.bind(), iter(indices), _clock()
        self._sample_rng.in_one_go(left, len(indices))
        try:
            samples = [fetch(index) for index in left]
        except Exception as error:
            index = indices[len(indices) - operator.length_hint(left) - 1]
            if isinstance(error, StopIteration):
                raise silent_end(index) from error
            note_index(error, index)
            raise
        self._fetched_ns = _clock()
        self._singly = self._fetched_ns - began_ns > _SLOW_ROW_NS * len(samples)
        return samples

    def _fetch_quickly(self, order: BatchOrder, chunk: Sequence[Any], row: int, samples: list[Any]) -> None:
        """Fetch rows that take a few microseconds each: every row is shown, the epoch is checked once."""
        self._at_row(order, row)
        fetch, here = self._fetcher.bind(), self._watch.here
        for index in chunk:
            here[ROW] = row
            samples.append(fetch(index))
            row += 1

    def _fetch_singly(self, order: BatchOrder, chunk: Sequence[Any], row: int, samples: list[Any]) -> None:
        """Fetch slow rows: the epoch is checked before each, so useless work ends after one row."""
        fetch, here, metered = self._fetcher.bind(), self._watch.here, self._metered
        before_ns = _clock() if metered else 0
        for index in chunk:
            self._at_row(order, row)
            if self._by_sample:
                self.seeder.row(order, row)
            here[INDEX] = index_word(index)
            samples.append(fetch(index))
            if metered:
                now_ns = _clock()
                if now_ns - before_ns > self._slow_ns:
                    self._slow_row, self._slow_ns = row, now_ns - before_ns
                before_ns = now_ns
            row += 1

    def _filtered_rows(
        self, order: BatchOrder, bad_filter: BadSampleFilter, indices: Sequence[Any], start: int, stop: int
    ) -> list[Any]:
        """Fetch rows one at a time without the bad ones. Raises EmptyBatch when none is left."""
        self._row_began = NO_ROW, 0
        if self._getitems is not None:
            self.seeder.range(order, 0)
            found = bad_filter.rows(order, indices, 0)
            if type(found) is list and not found:
                raise EmptyBatch
            return found  # type: ignore[no-any-return]  # as the dataset returned it
        fetched: list[Any] | None = None
        if self.fetch_threads is not None and _can_share(order, indices):
            fetched = self._at_once(self.fetch_threads, order, indices, start, collect_errors=True)
        samples: list[Any] = []
        for number, (first, last) in enumerate(row_ranges(order.rows or len(indices))):
            if last > start and first < stop:
                if fetched is None:
                    self.seeder.range(order, number)
                chunk = slice(first - start, last - start)
                samples += bad_filter.rows(order, indices[chunk], first, fetched and fetched[chunk])
                if self._metered:
                    self._time_row(NO_ROW)
        if not samples and order.parts == 1:
            raise EmptyBatch
        return samples

    def _before_row(self, order: BatchOrder, row: int, at: int, index: Any) -> None:
        self._at_row(order, at)
        if self._metered:
            self._time_row(at if at == row else NO_ROW)
        self._watch.here[INDEX] = index_word(index)
        self._sample_rng.at_row(None if at == TOGETHER else row)
        if self._by_sample:
            self.seeder.row(order, row)

    def _time_row(self, row: int) -> None:
        """Time a row of the bad-sample filter: ``row`` begins and the row before it ends. NO_ROW: no row of the ticket begins."""
        (before, began_ns), now_ns = self._row_began, _clock()
        self._row_began = row, now_ns
        if before != NO_ROW and now_ns - began_ns > max(self._slow_ns, _SLOW_ROW_NS):
            self._slow_row, self._slow_ns = before, now_ns - began_ns

    def _reseed(self, order: BatchOrder) -> None:
        self.seeder.range(order, 0)

    def _before_pull(self, order: BatchOrder, pulled: int) -> None:
        if pulled:
            self._at_row(order, NO_ROW)
        self._sample_rng.at_pull(pulled)
        self.seeder.pull(order, pulled)

    def _at_row(self, order: BatchOrder, row: int) -> None:
        watch = self._watch
        watch.here[ROW] = row
        there = watch.there
        if there is not None and there[EPOCH] != order.epoch:
            raise Abandoned

    def _one(self, order: BatchOrder) -> Any:
        self._slow_row, self._slow_ns, self._row_began = NO_ROW, 0, (0, _clock())
        if self._bad_filter is not None:
            self.seeder.range(order, 0)
            samples = self._bad_filter.rows(order, [order.indices], 0)
            if not samples:
                raise EmptyBatch
            return samples[0]
        self.seeder.whole(order)
        self._at_row(order, 0)
        self._watch.here[INDEX] = index_word(order.indices)
        try:
            return self._fetcher.bind()(order.indices)
        except StopIteration as error:
            raise silent_end(order.indices) from error
        except Exception as error:
            note_index(error, order.indices)
            raise

    def _convert(self, sample: Any) -> Any:
        if self._metered:
            self._time_row(NO_ROW)
        self._collating()
        return self.spec.collate_fn(sample)

    def _collating(self) -> None:
        if self._metered:
            self._fetched_ns = _clock()
        self._watch.here[PHASE] = COLLATING
        self._sample_rng.collating = True

    def _collate(self, samples: Any, indices: Sequence[Any] | None) -> Any:
        self._collating()
        return collate_samples(self.spec.collate_fn, samples, indices, own=self.spec.own_collate)


def _inline_seeder(spec: WorkerSpec) -> Seeder:
    from stoker._runtime.worker.rng.inline_seeder import InlineSeeder  # worker processes need none of it

    return InlineSeeder(spec)


def _can_share(order: BatchOrder, indices: Sequence[Any]) -> bool:
    """Whether several threads may fetch these rows. Not after a worker died: one row at a time shows which one kills."""
    return len(indices) > 1 and not order.attempt and not order.excluded


def _ends(outcome: Any, collect_errors: bool) -> bool:
    return type(outcome) is FetchError and not (collect_errors and isinstance(outcome.error, Exception))


def collate_samples(
    collate_fn: Callable[[Any], Any], samples: Any, indices: Sequence[Any] | None, *, own: bool
) -> Any:
    """Collate samples. An error gets a note with the batch and, with torch's ``own`` collation, an explanation."""
    try:
        return collate_fn(samples)
    except StopIteration as error:
        raise RuntimeError("collate_fn raised StopIteration") from error
    except Exception as error:
        if indices is not None:
            note_indices(error, indices)
        if own:
            explain_collation(error, samples, indices)
        raise


def _listed(indices: Any) -> Sequence[Any]:
    """Return indices that can be sliced; batch samplers may yield any iterable."""
    if isinstance(indices, list | tuple):
        return indices
    return list(indices)


def _without_bad(indices: Sequence[Any], samples: Sequence[Any], bad: Sequence[BadSample]) -> Sequence[Any]:
    """Return the indices of the samples that are left, for error messages."""
    if len(samples) == len(indices):
        return indices
    rows = {each.row for each in bad}
    return [index for row, index in enumerate(indices) if row not in rows]
