"""Takes apart what workers write to the result pipe: headers become events for the scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stoker._runtime.executors.base import Arrival
from stoker._runtime.executors.process.worker_handle import WorkerHandle
from stoker._runtime.protocol import wire
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.types import Receipt, SlotRef, Spans
from stoker._runtime.transport.arena import Arena

_READY = int(wire.ResultKind.READY)
_RESULTS = (_READY, int(wire.ResultKind.FAILED))


class ResultDecoder:
    """Owner: the executor, which calls it with whole headers. ``handles`` are its living workers: a start or an end that a
    worker announces is noted there.
    """

    def __init__(self, handles: Mapping[int, WorkerHandle], arena: Arena) -> None:
        self._handles = handles
        self._arena = arena
        self._epoch = 0

    def begin(self, epoch: int) -> None:
        """Begin another epoch. Slots of an earlier one may have another user."""
        self._epoch = epoch

    def arrivals(self, data: bytes) -> list[Arrival]:
        """The events of one or more headers, in their order."""
        arrivals = []
        for fields in wire.unpack_results(data):
            kind = fields[1]
            if kind in _RESULTS:
                (_, _, flags, worker, epoch, seq, attempt, part, slot, slot_generation, scratch, scratch_generation,
                 root_offset, root_bytes, nbytes, shared_bytes, *spans) = fields  # fmt: skip
                event = (m.BatchReady if kind == _READY else m.BatchFailed)(
                    seq, attempt, part, worker,
                    SlotRef(slot, slot_generation),
                    None if scratch == wire.NO_SLOT else SlotRef(scratch, scratch_generation),
                    Receipt(root_offset, root_bytes, nbytes, 0, None, shared_bytes),
                    Spans(*spans),
                )  # fmt: skip
                if flags:
                    arrivals += _kept(flags, worker, slot, scratch)
                arrivals.append(Arrival(epoch, event))
            else:
                header = wire.ResultHeader._make(fields)
                arrivals += _kept(header.flags, header.worker, header.slot, header.scratch)
                arrivals += self._rare(header)
        return arrivals

    def _rare(self, header: wire.ResultHeader) -> list[Arrival]:
        """Handle rare messages: start, end of a stream, skipped work, released slots, leaving."""
        key = (header.seq, header.attempt, header.part)
        if header.kind == wire.ResultKind.UP:
            if header.worker in self._handles:
                self._handles[header.worker].started = True
            return [Arrival(-1, m.WorkerUp(header.worker))]
        if header.kind == wire.ResultKind.ENDED:
            slot = SlotRef(header.slot, header.slot_generation)
            final_state: Any = None  # in a later epoch the slot may have another user
            if header.nbytes and header.epoch == self._epoch:
                final_state = self._arena.copy_out(slot, header.nbytes).load(
                    header.root_offset, header.root_bytes
                )
            return [Arrival(header.epoch, m.SourceEnded(*key, header.worker, slot, None, final_state))]
        if header.kind == wire.ResultKind.SKIPPED:
            return [Arrival(header.epoch, m.Withdrawn(*key))]
        if header.kind == wire.ResultKind.UNHELD:
            return [Arrival(-1, m.Unheld(header.slot, header.worker))]
        if header.kind == wire.ResultKind.LEAVING and header.worker in self._handles:
            handle = self._handles[header.worker]
            handle.leaving = handle.left = True
        return []


def _kept(flags: int, worker: int, slot: int, scratch: int) -> list[Arrival]:
    """Return events for slots that user code in the worker still refers to."""
    held = ((wire.HELD_SLOT, slot), (wire.HELD_SCRATCH, scratch))
    return [Arrival(-1, m.Held(index, worker)) for bit, index in held if flags & bit]
