"""Tracks which batches one iteration has delivered. The loader keeps it too: it outlives a dropped iterator."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stoker._receipt.receipt_writer import ReceiptWriter
from stoker._runtime.checkpoint.state_format import StreamState
from stoker._runtime.protocol.worker_spec import Resume
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.types import StreamStart, Ticket


class Progress:
    """Written by the iteration, read by the loader, on the thread that iterates.

    What the consumer was given counts, and nothing that was made ahead. A batch whose error was raised was given, and so was one of
    which no sample was good. ``in_order`` false: batches may be given ahead of others. ``streams`` are there for iterable
    datasets, one per worker.
    """

    def __init__(
        self,
        *,
        in_order: bool,
        batched: bool = True,
        batches: int = 0,
        samples: int = 0,
        ahead: tuple[int, ...] = (),
        snapshot: tuple[int, bytes] | None = None,
        streams: tuple[StreamState, ...] | None = None,
        turn: int = 0,
        fresh: bool = False,
    ) -> None:
        self.finished = False
        self.receipt_writer: ReceiptWriter | None = None
        """Keeps the receipt; None without one."""
        self._noted: tuple[Ticket | None, int] = (None, -1)
        """The batch that was noted there last, and its number."""
        self._ends: Mapping[int, tuple[int, Any]] = {}
        self._batched = batched
        self._batches = batches
        self._samples = samples
        self._ahead: dict[int, tuple[int, Any] | None] = dict.fromkeys(ahead)
        self._snapshot = snapshot
        self._simple = in_order and not ahead
        self._last: Ticket | None = None
        self._undo: tuple[Any, ...] | None = None
        """What the last ``note`` replaced; None before the first."""
        self._undo_of: Ticket | None = None
        """Of which ticket that is. An interrupt may end ``note`` early: both are set, or neither."""
        self._undo_before: tuple[tuple[Any, ...] | None, Ticket | None] = (None, None)
        """Both, of the ``note`` before: what they are again when the last one is taken back."""
        self._turn = turn
        self._fresh = fresh
        self._begun = streams
        self._pulled = None if streams is None else [0 if fresh else each.pulled for each in streams]
        if self._pulled is not None:
            self._batches -= sum(self._pulled)  # what streams gave that are no more
        self._stream_starts: dict[int, Resume] = {}
        self._next_resume: Resume | None = None
        self._carried: tuple[StreamState, ...] | None = None

    def follow_ends(self, ends: Mapping[int, tuple[int, Any]]) -> None:
        """Read this mapping from now on. By worker: the number of batches of a stream that ended, and its dataset's last state."""
        self._ends = ends

    def finish(self) -> None:
        """The epoch was iterated to its end."""
        self.finished = True
        if self.receipt_writer is not None:
            self.receipt_writer.finish()

    def keep_receipt(self, writer: ReceiptWriter) -> None:
        """Write down in this writer what is handed over."""
        self.receipt_writer = writer

    def end(self) -> None:
        """The iteration is over, at its end or before. Idempotent."""
        if self.receipt_writer is not None:
            self.receipt_writer.close()

    def note_bad(self, bad: Sequence[Any], *, replaced: bool) -> None:
        """These samples are not in the batch that is noted next."""
        if self.receipt_writer is not None:
            self.receipt_writer.note_bad(bad, replaced=replaced)

    def note(self, deliver: m.Deliver, *, failed: bool = False) -> None:
        """The batch of this ticket was handed over, or its error was raised (``failed``)."""
        ticket = deliver.ticket
        writer = self.receipt_writer
        if writer is not None:
            # Tickets of streams that end early leave gaps in the numbers, as timing has it.
            number = ticket.number if self._pulled is None else self._batches + sum(self._pulled)
            self._noted = ticket, number
            if failed:
                writer.note_failed(number)
            else:
                writer.note(number, ticket.indices)
        if self._pulled is not None:
            worker = deliver.results[0].worker
            start = self._stream_starts.get(worker)
            self._undo_before = self._undo, self._undo_of
            self._undo, self._undo_of = (worker, self._turn, start), ticket
            self._pulled[worker] += 1
            self._turn = worker + 1
            if self._next_resume is not None:
                self._stream_starts[worker], self._next_resume = self._next_resume, None
        elif self._simple:
            self._undo_before = self._undo, self._undo_of
            self._undo, self._undo_of = (self._last, self._snapshot), ticket
            self._last = ticket
            if ticket.plan_state is not None:
                self._snapshot = (ticket.number + 1, ticket.plan_state)  # type: ignore[assignment]
        else:
            ahead = self._ahead.copy()
            self._undo_before = self._undo, self._undo_of
            self._undo, self._undo_of = (self._batches, self._samples, ahead, self._snapshot), ticket
            self._ahead[ticket.number] = (self._end(ticket), ticket.plan_state)
            self._close_up()

    def take_back(self, deliver: m.Deliver) -> None:
        """The batch that was noted last, or whose noting an interrupt ended, was not handed over after all."""
        if self.receipt_writer is not None:
            ticket, number = self._noted
            self.receipt_writer.take_back(number if ticket is deliver.ticket else -1)
        self._next_resume = None
        if self._undo_of is deliver.ticket:
            vars(self).update(vars(self.before_last()))
            self._undo, self._undo_of = self._undo_before

    def passed(self, number: int, samples: int) -> None:
        """The planner passed over a batch that was handed over before this iteration."""
        if number >= self._batches:
            self._ahead[number] = (samples, None)
            self._close_up()

    def before_last(self) -> Progress:
        """A copy that does not count the batch that was handed over last. For consumers that read one batch ahead."""
        other = copy.copy(self)
        if self._undo is None:
            return other
        if self._pulled is not None:
            worker, other._turn, start = self._undo
            other._pulled = [pulled - (number == worker) for number, pulled in enumerate(self._pulled)]
            other._stream_starts = {**self._stream_starts, worker: start}
            if start is None:
                del other._stream_starts[worker]
        elif self._simple:
            other._last, other._snapshot = self._undo
        else:
            other._batches, other._samples, other._ahead, other._snapshot = self._undo
        return other

    def note_stream_start(self, worker: int, resume: Resume) -> None:
        """Keep the state that a stream's dataset and iterator have at its beginning."""
        self._stream_starts[worker] = resume

    def note_resume(self, resume: Resume) -> None:
        """Keep the stream's state after the batch that is noted next. It counts only when that batch is delivered."""
        self._next_resume = resume

    def carry(self, before: Progress) -> None:
        """Let streams continue with the datasets that the last epoch left in their workers."""
        streams = before.streams if before.finished else None
        if streams is not None and self._begun == (StreamState(),) * len(streams):
            self._carried = streams

    @property
    def noted_number(self) -> int:
        """The number in the receipt of the batch that was noted last."""
        return self._noted[1]

    @property
    def batches(self) -> int:
        """Every batch with a smaller number was handed over."""
        if self._pulled is not None:
            return self._batches + sum(self._pulled)
        return self._batches if self._last is None else self._last.number + 1

    @property
    def samples(self) -> int:
        """How many samples lie before the batch with that number; 0 for streams, of which only their workers know."""
        if self._pulled is not None:
            return 0
        return self._samples if self._last is None else self._end(self._last)

    @property
    def ahead(self) -> tuple[int, ...]:
        """Batches that were handed over beyond it."""
        return tuple(sorted(self._ahead))

    @property
    def snapshot(self) -> tuple[int, bytes] | None:
        """The sampler's newest state that is not ahead of what was handed over, and after how many batches it was taken."""
        return self._snapshot

    @property
    def turn(self) -> int:
        """The stream whose turn it is."""
        return self._turn % len(self._pulled) if self._pulled is not None else 0

    @property
    def streams(self) -> tuple[StreamState, ...] | None:
        """Where every stream stands."""
        if self._pulled is None:
            return None
        return tuple(self._stream(worker, pulled) for worker, pulled in enumerate(self._pulled))

    def _stream(self, worker: int, pulled: int) -> StreamState:
        assert self._begun is not None
        was, said = self._begun[worker], self._stream_starts.get(worker)
        if self._fresh:
            was = StreamState(dataset=was.dataset)
        elif self._carried is not None:
            was = StreamState(dataset=self._carried[worker].dataset)
        total, final_state = self._ends.get(worker, (-1, None))
        ended = was.ended or total == pulled or (said is not None and said.ended)
        begun = was.begun or pulled > 0
        if total == pulled and final_state is not None:
            said = final_state
        if said is None:
            # A state is its reader's, to change as he likes.
            mine = copy.deepcopy((was.dataset, was.iterator))
            return StreamState(pulled, was.at, *mine, ended, begun)
        at = min(pulled, said.pulled)  # a stream may find its end by one pull more
        return StreamState(pulled, at, _load(said.dataset), _load(said.iterator), ended, begun)

    def stream_start(self) -> StreamStart | None:
        """For the scheduler: where streams begin, None at the beginning of an epoch."""
        streams = self._begun
        if streams is None or self._fresh or not any(each.pulled or each.ended for each in streams):
            return None
        live = tuple(worker for worker, each in enumerate(streams) if not each.ended)
        turn = sum(worker < self._turn for worker in live)
        return StreamStart({worker: each.pulled for worker, each in enumerate(streams)}, live, turn)

    def resumes(self, epoch: int) -> Iterator[tuple[int, Resume]]:
        """For the workers: what was saved of the user's parts."""
        for worker, each in enumerate(self._begun or ()):
            if each.dataset is not None or each.iterator is not None:
                states = (_dump(each.dataset), _dump(each.iterator))
                ended = each.ended and not self._fresh
                at_start = self._fresh or not each.begun
                yield worker, Resume(epoch, each.at, *states, self._fresh, ended, at_start)

    def _end(self, ticket: Ticket) -> int:
        """How many samples lie before and in it. Without automatic batching a ticket is a sample and has no rows."""
        return ticket.sample + (ticket.rows if self._batched else 1)

    def _close_up(self) -> None:
        """Count batches as delivered once no earlier batch is missing."""
        ahead = self._ahead
        while (found := ahead.get(self._batches)) is not None:
            del ahead[self._batches]
            self._batches += 1
            self._samples, state = found
            if state is not None:
                self._snapshot = (self._batches, state)


def _dump(state: Any) -> bytes | None:
    return None if state is None else pickle.dumps(state)


def _load(raw: bytes | None) -> Any:
    return None if raw is None else pickle.loads(raw)
