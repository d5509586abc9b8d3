"""Carries out a task in this process, for the inline and the thread executor."""

from __future__ import annotations

import time

from stoker._runtime.executors.base import HEAP, Arrival, IterationStart
from stoker._runtime.protocol.worker_spec import BatchOrder
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.types import Receipt, Spans, Task, Ticket
from stoker._runtime.transport.batch_size import batch_bytes
from stoker._runtime.worker.batch_maker import BatchMaker
from stoker._runtime.worker.cpu_meter import CpuMeter
from stoker._runtime.worker.stream import Abandoned, StreamEnded

_clock = time.monotonic_ns


def carry_out(
    maker: BatchMaker,
    task: Task,
    start: IterationStart,
    worker: int,
    *,
    measure_size: bool = False,
    meter: CpuMeter | None = None,
    dispatched_ns: int = 0,
) -> Arrival:
    """Make the batch of a whole ticket; the arrival carries the result or the exception as an object.

    With ``measure_size``, the receipt has an estimate of its size, for executors that make batches ahead. ``meter`` belongs to
    this thread.
    """
    ticket = task.ticket
    part = task.part
    order = BatchOrder(
        ticket.epoch, ticket.seq, ticket.position, task.attempt, part.number, part.count, part.start, part.stop,
        ticket.rows, ticket.seed, start.pipe_seed, task.pull, ticket.indices, ticket.excluded, ticket.spares,
    )  # fmt: skip
    key = (ticket.seq, task.attempt, part.number)
    began_ns = _clock()
    if meter is not None and meter.slow:
        meter.began(began_ns)
    try:
        batch = maker.make(order, None)
    except StreamEnded as end:
        return Arrival(ticket.epoch, m.SourceEnded(*key, worker, None, None, end.final_state))
    except Abandoned:
        return Arrival(ticket.epoch, m.Withdrawn(*key))
    except BaseException as error:
        # Ctrl-C too: the engine would wait for ever for a task without an outcome.
        receipt = Receipt(flags=HEAP, heap=error)
        spans = _spans(maker, meter, dispatched_ns, began_ns, 0)
        return Arrival(ticket.epoch, m.BatchFailed(*key, worker, None, None, receipt, spans))
    collated_ns = _clock()
    receipt = Receipt(flags=HEAP, heap=batch, nbytes=batch_bytes(batch) if measure_size else 0)
    spans = _spans(maker, meter, dispatched_ns, began_ns, collated_ns)
    return Arrival(ticket.epoch, m.BatchReady(*key, worker, None, None, receipt, spans))


def carry_out_plainly(
    maker: BatchMaker, ticket: Ticket, meter: CpuMeter | None
) -> m.BatchReady | m.BatchFailed:
    """The same for a maker that is ``plain``: the whole ticket, without an order and a task."""
    began_ns = _clock()
    if meter is not None and meter.slow:
        meter.began(began_ns)
    try:
        batch = maker.make_plainly(ticket.indices)
    except BaseException as error:
        receipt, spans = Receipt(flags=HEAP, heap=error), _spans(maker, meter, 0, began_ns, 0)
        return m.BatchFailed(ticket.seq, 0, 0, 0, None, None, receipt, spans)
    spans = _spans(maker, meter, 0, began_ns, _clock())
    return m.BatchReady(ticket.seq, 0, 0, 0, None, None, Receipt(flags=HEAP, heap=batch), spans)


def _spans(
    maker: BatchMaker, meter: CpuMeter | None, dispatched_ns: int, began_ns: int, collated_ns: int
) -> Spans:
    sent_ns = _clock()
    if meter is None:
        return Spans(dispatched_ns, began_ns, 0, 0, sent_ns)
    reading = meter.ended(began_ns, sent_ns)
    fetched_ns, slow_row, slow_ns = maker.measured(began_ns)
    return Spans(dispatched_ns, began_ns, fetched_ns, collated_ns, sent_ns, *reading, slow_row, slow_ns)
