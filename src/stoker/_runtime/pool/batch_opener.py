"""Opens delivered tickets: a batch over a leased slot, a copy of one, or the worker's exception."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import default_collate

from stoker._runtime.checkpoint.progress import Progress
from stoker._runtime.device.stager import Source
from stoker._runtime.executors.base import HEAP
from stoker._runtime.executors.process.crash_report import code_of
from stoker._runtime.pool.loader_stats import LoaderStats
from stoker._runtime.protocol.failures import PackedError, unpack
from stoker._runtime.protocol.worker_spec import BadSampleMode, Resume
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.policy import LEASE_CAP, lease_pays
from stoker._runtime.scheduler.slots import SlotTable
from stoker._runtime.scheduler.ticket_text import place
from stoker._runtime.scheduler.types import Receipt, SlotRef, Ticket
from stoker._runtime.transport.base import BatchRegion, SlotReader
from stoker._runtime.transport.flat_table import FlatTable, flat_table
from stoker._runtime.worker.bad_samples import BadSample, Envelope, killer
from stoker._runtime.worker.batch_maker import collate_samples
from stoker._runtime.worker.split_batches import PartRows, join_placed, samples_of
from stoker.errors import WorkerDied, coded

NOTHING = object()
"""Returned for a batch without any good sample."""


class OpenedAhead(NamedTuple):
    """A batch that was opened before it is asked for. Nothing was counted yet; its slot is leased."""

    source: Source
    envelope: Envelope | None
    worker: int


class _OpenedParts(NamedTuple):
    parts: list[PartRows]
    failure: BaseException | None
    main: SlotRef | None


class BatchOpener:
    """Turns results into batches. One per pool, on the thread that iterates."""

    def __init__(
        self,
        slots: SlotTable,
        arena: SlotReader | None,
        agree: Callable[[int], None],
        remember: Callable[[int, Resume], None],
        mode: BadSampleMode = "raise",
    ) -> None:
        self._remember = remember
        self._mode = mode
        self._stats = LoaderStats("loader")
        self._progress: Progress | None = None
        self._slots = slots
        self._arena = arena
        self._agree = agree
        self._layout = 0
        self._tables = True
        """Whether batches that are opened ahead were flat in this epoch. Others are described by more than a table."""
        self._known_table: tuple[bytes, FlatTable | None] = (b"", None)
        self._parts: dict[int, _OpenedParts] = {}
        """Parts of split tickets that were opened ahead and could not be joined."""
        self.misfit = False
        """Whether the parts of a split ticket did not fit together. The loop then stops splitting."""

    def begin(self, stats: LoaderStats, progress: Progress) -> None:
        """An epoch begins: report its bad samples and stream states to these objects from now on."""
        self._stats = stats
        self._progress = progress
        self._tables = True

    def open(self, deliver: m.Deliver) -> Any:
        """The batch of a delivered ticket. Raises the exception of its worker."""
        results = deliver.results
        if len(results) == 1:
            result = results[0]
            if type(result) is m.BatchReady:
                receipt = result.receipt
                if receipt.flags & HEAP:
                    batch = receipt.heap
                else:
                    assert result.slot is not None
                    region = self._claim(result.slot, receipt.nbytes)
                    batch = region.load(receipt.root_offset, receipt.root_bytes)
                return batch if type(batch) is not Envelope else self._unwrap(batch, result.worker)
        return self._open_rare(deliver)

    def open_ahead(self, deliver: m.Deliver) -> OpenedAhead | None:
        """Open a batch that may never be asked for. None if it has to wait: it failed, or the parent has to collate it.

        It lies in its slot whatever its size: a device reads it there.
        """
        results = deliver.results
        first = results[0]
        if len(results) == 1 and type(first) is m.BatchReady:
            receipt = first.receipt
            if receipt.flags & HEAP:
                batch, memory = receipt.heap, None
            else:
                assert first.slot is not None
                region = self._lease(first.slot, receipt.nbytes)
                if region is None:
                    return None
                memory = region.memory
                table = self._table_of(region, receipt) if self._tables else None
                if table is not None:
                    return OpenedAhead(Source(None, memory, table), None, first.worker)
                batch = region.load(receipt.root_offset, receipt.root_bytes)
            if type(batch) is Envelope:
                return OpenedAhead(Source(batch.contents, memory), batch, first.worker)
            return OpenedAhead(Source(batch, memory), None, first.worker)
        if len(results) == 1 or any(type(result) is not m.BatchReady for result in results):
            return None
        if deliver.ticket.seq in self._parts:
            return None
        parts, _, main = opened = self._open_parts(deliver)
        if all(part.raw is None and not part.bad for part in parts) and main is not None:
            region = self._lease(main, max(part.nbytes for part in parts))
            if region is not None:
                return OpenedAhead(
                    Source(join_placed(parts, region.tensor), region.memory), None, first.worker
                )
        self._parts[deliver.ticket.seq] = opened
        return None

    def _table_of(self, region: BatchRegion, receipt: Receipt) -> FlatTable | None:
        """The table of a flat batch, read once for batches that have the same. None for one to be opened in host memory."""
        root = region.root(receipt.root_offset, receipt.root_bytes)
        known_root, table = self._known_table
        if root != known_root:
            table = flat_table(root)
            self._known_table = root, table
            self._tables = table is not None
        return table if table is not None and table.start + table.nbytes <= receipt.nbytes else None

    def settle(self, ahead: OpenedAhead) -> bool:
        """A batch that was opened ahead is asked for: count what it reports. False if it has no good sample."""
        return ahead.envelope is None or self._unwrap(ahead.envelope, ahead.worker) is not NOTHING

    def forget_ahead(self) -> None:
        """The iteration is over: nobody will ask for what was opened ahead."""
        self._parts.clear()

    def _lease(self, ref: SlotRef, nbytes: int) -> BatchRegion | None:
        """The slot's bytes; None if the user holds so many slots that batches are to be copied to the heap."""
        assert self._arena is not None
        if self._slots.leased >= LEASE_CAP or not nbytes:
            return None
        # The lease comes before the state changes: it may fail for lack of address space.
        region = self._arena.lease(ref, nbytes)
        self._slots.lease(ref)
        return region

    def _unwrap(self, envelope: Envelope, worker: int) -> Any:
        if envelope.resume is not None:
            self._remember(worker, envelope.resume)
            if self._progress is not None:
                self._progress.note_resume(envelope.resume)
        if envelope.bad:
            self._note_bad(envelope.bad)
        return NOTHING if envelope.empty else envelope.contents

    def _note_bad(self, bad: Sequence[BadSample]) -> None:
        self._stats.note_bad(bad, self._mode)
        if self._progress is not None:
            self._progress.note_bad(bad, replaced=self._mode == "replace")

    def _claim(self, ref: SlotRef, nbytes: int) -> BatchRegion:
        """The slot's bytes: a lease for large batches; otherwise a copy, which frees the slot at once."""
        arena, slots = self._arena, self._slots
        assert arena is not None
        if lease_pays(nbytes, slots.leased):
            # The lease comes before the state changes: it may fail for lack of address space.
            region = arena.lease(ref, nbytes)
            slots.lease(ref)
            return region
        return self._copy(ref, nbytes)

    def _copy(self, ref: SlotRef, nbytes: int) -> BatchRegion:
        assert self._arena is not None
        region = self._arena.copy_out(ref, nbytes)
        self._slots.release(ref)
        return region

    def _open_rare(self, deliver: m.Deliver) -> Any:
        """Open a split ticket, or raise its failure: the one in the earliest row, as without splitting."""
        known = self._parts.pop(deliver.ticket.seq, None)
        parts, failure, main = self._open_parts(deliver) if known is None else known
        if failure is not None:
            if main is not None:
                self._slots.release(main)
            self._note_killers(deliver.ticket)
            raise failure
        assert main is not None
        nbytes = max(part.nbytes for part in parts)
        bad = [each for part in parts for each in part.bad]
        if bad:
            self._note_bad(bad)
        if all(part.raw is None for part in parts):
            return join_placed(parts, self._claim(main, nbytes).tensor)
        samples = samples_of(parts, self._copy(main, nbytes).tensor)
        if not samples:
            return NOTHING
        whole = {part.layout for part in parts if not part.short}
        if whole:
            self._judge(whole)
        indices: Any = deliver.ticket.indices
        if any(part.short for part in parts):
            missing = {each.row for each in bad}
            indices = [index for row, index in enumerate(indices) if row not in missing]
        with torch.no_grad():  # as in a worker: batches have no graph
            return collate_samples(default_collate, samples, indices, own=True)

    def _open_parts(self, deliver: m.Deliver) -> _OpenedParts:
        """What the parts of a ticket hold, the failure of the first that failed, and the slot of their rows."""
        failure: BaseException | None = None
        parts: list[PartRows] = []
        main: SlotRef | None = None
        for result in deliver.results:
            if type(result) is m.Lost:
                failure = failure or _died(result, deliver.ticket)
                continue
            assert not isinstance(result, m.Lost)
            main = result.slot
            opened = self._open_part(result)
            if type(result) is m.BatchFailed:
                failure = failure or _to_raise(opened)
            else:
                parts.append(opened)
        return _OpenedParts(parts, failure, main)

    def _note_killers(self, ticket: Ticket) -> None:
        """Count the samples that killed workers, although their batch failed."""
        if ticket.excluded and self._mode != "raise":
            indices: Any = ticket.indices if ticket.rows else [ticket.indices]
            bad = [killer(index, row) for row, index in enumerate(indices) if row in ticket.excluded]
            self._stats.note_bad(bad, self._mode)

    def _judge(self, layouts: set[int]) -> None:
        """Adopt the first common layout; otherwise stop splitting.

        A layout is adopted only once. With two of them, rows of one ticket could overlap.
        """
        if self._layout or len(layouts) > 1 or 0 in layouts:
            self.misfit = self.misfit or layouts != {self._layout}
        else:
            [self._layout] = layouts
            self._agree(self._layout)

    def _open_part(self, result: m.BatchReady | m.BatchFailed) -> Any:
        """The contents of a part's scratch slot, or of the slot of a whole ticket that failed."""
        receipt: Receipt = result.receipt
        if receipt.flags & HEAP:
            if result.scratch is not None:
                self._slots.release(result.scratch)
            return receipt.heap
        ref = result.scratch or result.slot
        assert ref is not None
        return self._copy(ref, receipt.nbytes).load(receipt.root_offset, receipt.root_bytes)


def _died(lost: m.Lost, ticket: Ticket) -> WorkerDied:
    text = lost.reason + lost.details
    if not lost.details:
        text += f"\n  worker {lost.worker} was on {place(ticket, -1)}"
    return coded(WorkerDied(text), code_of(text))


def _to_raise(opened: Any) -> BaseException:
    if isinstance(opened, PackedError):
        return unpack(opened)
    assert isinstance(opened, BaseException)
    return opened
