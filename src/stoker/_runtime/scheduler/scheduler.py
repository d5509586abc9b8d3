"""The scheduler: events in, commands out. Pure, single-threaded, one per iteration.

    Planned ──► PLANNED ──dispatch──► DISPATCHED ──BatchReady──► READY ──Taken──► TAKEN
                                        │   ▲  └──BatchFailed──► READY (an error is delivered in its place)
                                        │   └──WorkerLost: issued again, new attempt, new slot
                                        └──SourceEnded──► VOID

The rest of the engine relies on these clauses:

- The ticket at the head of the line is always admitted, whatever window and budget say. Otherwise they would deadlock.
- Undelivered bytes exceed the budget at most by the tickets in progress at the moment when batches grew. A ticket that was issued
  again counts twice until it is taken, if the first writer may still be writing.
- Issuing a task again is always safe. A late duplicate carries an old attempt. It is recognised and dropped.
- A task is issued again when its worker is lost and it is neither finished, nor back in the channel, nor claimed by a live
  worker. Its slot is retired, because its possible writer is unknown. The same holds for the slot that the parts of a split
  ticket share, unless the writer is known to be the dead worker. All parts are then made again, in another slot.
- After Finish nothing is delivered. A batch that was delivered before may still be taken, until CloseAsked.
- A batch may be opened before it is taken (``device_prefetch``): its slot is then leased, and its ticket still READY and counted.
  CloseAsked forgets the ticket and leaves the slot to its lease. A leased slot is freed by the end of its lease alone, whatever
  becomes of its ticket, its iteration or its workers.
- The lease of a batch that goes to a device ends only when its copy's event is done and nobody else reads the slot. Until then
  the slot is not reused, trimmed or unmapped.
- Each event takes amortised constant time, except WorkerLost, which looks at all open tickets once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.deaths import DeathCounts
from stoker._runtime.scheduler.policy import RECENT_BATCHES, SIZE_MEMORY, Policy, parts_for
from stoker._runtime.scheduler.reorder import Reorder
from stoker._runtime.scheduler.row_ranges import share_ranges
from stoker._runtime.scheduler.slots import SlotTable
from stoker._runtime.scheduler.story import Story, TicketState
from stoker._runtime.scheduler.stream_turns import StreamTurns
from stoker._runtime.scheduler.types import Part, SlotRef, StreamStart, Task, Ticket
from stoker.errors import IllegalMove

_D, _R, _V, _T = TicketState.DISPATCHED, TicketState.READY, TicketState.VOID, TicketState.TAKEN


class Scheduler:
    """Decides which worker makes which task, and which batch is delivered next.

    The engine calls it on the thread that iterates. All iterations of a pool share ``slots``, because leases outlive the
    iteration that made them. ``workers`` is the wanted number of workers. ``worker_ids`` are the ids of the workers that exist, if
    these are not the first ``workers`` ids: some may have been asked to leave and still exist.
    """

    def __init__(
        self,
        policy: Policy,
        slots: SlotTable,
        workers: int,
        *,
        worker_ids: Iterable[int] | None = None,
        row_ns: float = 0.0,
        typical_bytes: int = 0,
        streams: StreamStart | None = None,
    ) -> None:
        self.policy = policy
        self.budget_bytes = policy.budget_bytes
        self.typical_bytes = typical_bytes
        self.window = policy.window
        self.max_window = policy.max_window
        self.splitting = policy.split
        self.closed = False
        self.reissued = 0
        self._slots = slots
        self._target = workers
        self._deepest = policy.max_window // max(1, workers)
        self._workers: dict[int, bool] = dict.fromkeys(
            range(workers) if worker_ids is None else worker_ids, True
        )
        self._streams = StreamTurns(workers, streams, in_order=policy.in_order)
        self._deaths = DeathCounts(policy)
        self._stories: dict[int, Story] = {}
        self._reorder: Reorder[m.Deliver] = Reorder(in_order=policy.in_order)
        self._open = 0
        self._tasks_out = 0
        self.ready_bytes = 0
        self.ready = 0
        """Batches that are made and not taken, and their bytes."""
        self._unknown_writers = 0
        self._peak_bytes = 0
        self._sized = 0
        self.row_ns = row_ns
        self._recent_ns: list[int] = []
        self._plan_ended = self.finished = streams is not None and not streams.live
        self._starving = False
        self._handlers: dict[type, Callable[[Any], list[m.Command]]] = {
            m.Planned: self._planned,
            m.BatchReady: self._batch_ready,
            m.BatchFailed: self._batch_ready,
            m.Taken: self._taken,
            m.Released: self._released,
            m.Starved: self._starved,
            m.SourceEnded: self._source_ended,
            m.Withdrawn: self._withdrawn,
            m.PlanEnded: self._plan_over,
            m.WorkerUp: self._worker_up,
            m.Claimed: self._claimed,
            m.WorkerLost: self._worker_lost,
            m.SplitRefused: self._split_refused,
            m.ResizeAsked: self._resize_asked,
            m.CloseAsked: self._close_asked,
        }

    def handle(self, event: m.Event) -> list[m.Command]:
        """Handle one event. Returns the commands to carry out, in order."""
        return self._handlers[type(event)](event)

    def allow_bytes(self, budget_bytes: int) -> None:
        """Bound the bytes of undelivered batches from now on; 0 for no bound."""
        self.budget_bytes = budget_bytes

    def has_room(self) -> bool:
        """Whether the planner should make another ticket now."""
        if self._plan_ended or self.finished:
            return False
        if self._open == 0:
            return True
        if self._open >= self.window:
            return False
        budget, typical = self.budget_bytes, self.typical_bytes
        if budget and typical:
            coming = (self._open - self.ready + self._unknown_writers + 1) * typical
            return self.ready_bytes + coming <= budget
        return not self.policy.careful or self._open < len(self._workers)

    @property
    def undelivered_bytes(self) -> int:
        """Bytes of batches that are made and not taken, plus those in progress by the size of recent batches."""
        return self.ready_bytes + (self._open - self.ready + self._unknown_writers) * self.typical_bytes

    @property
    def idle(self) -> int:
        """Idle workers, as far as the parent can know."""
        return max(0, self._usable_workers() - self._tasks_out)

    def _usable_workers(self) -> int:
        """Workers to count on: without those that were asked to leave."""
        return min(len(self._workers), self._target)

    @property
    def open_tickets(self) -> int:
        """Tickets planned and not yet taken or void."""
        return self._open

    @property
    def workers(self) -> frozenset[int]:
        """Ids of the workers that are up or starting."""
        return frozenset(self._workers)

    @property
    def target(self) -> int:
        """The wanted number of workers."""
        return self._target

    @property
    def head(self) -> int:
        """The number of the ticket that is delivered next, in order."""
        return self._reorder.head

    @property
    def deaths(self) -> int:
        """Workers that were lost unexpectedly."""
        return self._deaths.total

    @property
    def ends(self) -> dict[int, tuple[int, object]]:
        """By worker: the number of batches of its stream, once known, and the dataset's state at its end."""
        return self._streams.ends

    def median_ns(self) -> float:
        """How long recent batches, or parts of them, took to make; 0 before the first."""
        return median(self._recent_ns) if self._recent_ns else 0.0

    def ticket(self, seq: int) -> Ticket | None:
        """An open ticket by number."""
        story = self._stories.get(seq)
        return story.ticket if story else None

    # Planning and dispatch

    def _planned(self, event: m.Planned) -> list[m.Command]:
        ticket = event.ticket
        if ticket.seq in self._stories:
            raise IllegalMove(f"planned twice: {self._stories[ticket.seq]}")
        story = Story(ticket)
        self._stories[ticket.seq] = story
        self._open += 1
        worker = None
        parts = 1
        pull = 0
        if self.policy.bound:
            worker, pull = self._streams.bind()
        elif self.splitting and event.ranges:
            parts = parts_for(
                idle=self.idle,
                ranges=len(event.ranges),
                first=ticket.seq == 0 and not self.row_ns,
                expected_ns=int(self.row_ns * ticket.rows),
            )
        if parts == 1:
            spans: tuple[tuple[int, int], ...] = ((0, ticket.rows),)
        else:
            spans = share_ranges(event.ranges, parts)
        slot = self._slots.acquire() if self.policy.shared_memory else None
        count = len(spans)
        scratch = None
        tasks = story.tasks
        for number, (start, stop) in enumerate(spans):
            if count > 1 and slot is not None:
                scratch = self._slots.acquire()
            tasks.append(Task(ticket, Part(number, count, start, stop), 0, slot, scratch, worker, pull))
        commands: list[m.Command] = [m.Dispatch(task) for task in tasks]
        story.results = [None] * count
        story.open_parts = count
        story.move(_D, "dispatched")
        self._tasks_out += count
        return commands

    def _plan_over(self, event: m.PlanEnded) -> list[m.Command]:
        self._plan_ended = True
        return self._finish_if_done()

    # Results

    def _batch_ready(self, event: m.BatchReady | m.BatchFailed) -> list[m.Command]:
        story = self._accept(event)
        if story is None:
            return []
        story.results[event.part] = event
        story.open_parts -= 1
        receipt = event.receipt
        story.nbytes += receipt.nbytes
        if receipt.shared_bytes > story.shared_bytes:
            story.nbytes += receipt.shared_bytes - story.shared_bytes
            story.shared_bytes = receipt.shared_bytes
        spans = event.spans
        if spans.sent_ns:
            task = story.tasks[event.part]
            rows = (task.part.stop - task.part.start) or 1
            took_ns = spans.sent_ns - spans.received_ns
            recent_ns = self._recent_ns
            recent_ns.append(took_ns)
            if len(recent_ns) > 2 * RECENT_BATCHES:
                del recent_ns[:RECENT_BATCHES]
            per_row = took_ns / rows
            self.row_ns = per_row if not self.row_ns else 0.8 * self.row_ns + 0.2 * per_row
        if self._starving and self.window < self.max_window:
            self._deepen(event.seq)
        if story.open_parts:
            return []
        return self._make_ready(story)

    def _deepen(self, seq: int) -> None:
        """Deepen the window if a batch behind the head of the line is done and a worker is idle. The consumer waits."""
        if seq != self._reorder.head and self._tasks_out < self._usable_workers() and not self._plan_ended:
            self.window += 1

    def _make_ready(self, story: Story) -> list[m.Command]:
        """All parts are complete: the batch waits for its turn, or is dropped if the iteration is over."""
        if self.finished:
            return self._drop(story)
        story.move(_R, "ready")
        size = story.nbytes
        self.ready += 1
        self.ready_bytes += size
        self._learn_size(size)
        deliver = m.Deliver(story.ticket, tuple([result for result in story.results if result is not None]))
        return list(self._reorder.put(story.ticket.seq, deliver))

    def _learn_size(self, size: int) -> None:
        """Expect the size of the largest recent batch. A larger one counts at once, because dispatched ones may be as large."""
        size = size or 1  # 0: not known yet
        if size > self._peak_bytes:
            self._peak_bytes = size
            if size > self.typical_bytes:
                self.typical_bytes = size
        self._sized += 1
        if self._sized == SIZE_MEMORY:
            self.typical_bytes = self._peak_bytes
            self._sized = self._peak_bytes = 0

    def _source_ended(self, event: m.SourceEnded) -> list[m.Command]:
        story = self._accept(event)
        if story is None:
            return []
        if self._streams.end(event.worker):
            self._plan_ended = True
        self._streams.ends.setdefault(event.worker, (story.tasks[event.part].pull, event.final_state))
        story.move(_V, "source ended")
        self._drop(story)
        if self.finished:
            return []
        commands: list[m.Command] = list(self._reorder.put(story.ticket.seq, None))
        return commands + self._finish_if_done()

    def _withdrawn(self, event: m.Withdrawn) -> list[m.Command]:
        story = self._accept(event)
        if story is not None:
            # Fills the part's place, so that a worker lost later does not count it a second time.
            story.results[event.part] = m.Lost(event.seq, event.part, -1, "withdrawn")
            story.open_parts -= 1
            if not story.open_parts:
                self._drop(story)
        return []

    def _accept(self, event: m.BatchReady | m.BatchFailed | m.SourceEnded | m.Withdrawn) -> Story | None:
        """The story that this result belongs to, or None for a late duplicate.

        The slots of a duplicate need no care: they were retired when its task was issued again.
        """
        story = self._stories.get(event.seq)
        if (
            story is None
            or story.state is not _D
            or event.part >= len(story.results)
            or story.results[event.part] is not None
            or story.tasks[event.part].attempt != event.attempt
        ):
            return None
        self._tasks_out -= 1
        worker = story.tasks[event.part].worker
        if worker is not None:
            self._streams.load[worker] -= 1
        return story

    def _drop(self, story: Story) -> list[m.Command]:
        """Forget a ticket that will not be delivered. Its slots are free again, except one that a device may read."""
        for task in story.tasks:
            for ref in (task.slot, task.scratch):
                if ref is not None and not self._slots.is_leased(ref):
                    self._slots.release(ref)
        del self._stories[story.ticket.seq]
        self._deaths.forget(story.ticket.seq)
        self._open -= 1
        self._unknown_writers -= story.unknown_writers
        return []

    # The consumer

    def _starved(self, event: m.Starved) -> list[m.Command]:
        self._starving = True
        return []

    def _taken(self, event: m.Taken) -> list[m.Command]:
        story = self._stories.pop(event.seq, None)
        if story is None:
            raise IllegalMove(f"ticket {event.seq} was taken but is not open")
        story.move(_T, "taken")
        self._starving = False
        self._deaths.taken(story.ticket)
        self._open -= 1
        self.ready -= 1
        self.ready_bytes -= story.nbytes
        self._unknown_writers -= story.unknown_writers
        return self._finish_if_done()

    def _released(self, event: m.Released) -> list[m.Command]:
        self._slots.release(event.slot)
        return []

    # Workers

    def _worker_up(self, event: m.WorkerUp) -> list[m.Command]:
        self._workers[event.worker] = True
        return []

    def _claimed(self, event: m.Claimed) -> list[m.Command]:
        story = self._stories.get(event.seq)
        if story and story.state is _D and story.tasks[event.part].attempt == event.attempt:
            story.claims[event.part] = event.worker
        return []

    def _split_refused(self, event: m.SplitRefused) -> list[m.Command]:
        self.splitting = False
        return []

    def _resize_asked(self, event: m.ResizeAsked) -> list[m.Command]:
        commands: list[m.Command] = []
        if self.policy.bound or self.closed:
            # Streams belong to workers: a new worker would have none, and one that leaves would take its stream along.
            return commands
        before, self._target = self._target, max(1, event.workers)
        self._refit(before, event.window)
        worker = 0
        for _ in range(before, self._target):
            # An id is free again when its worker is gone, not when it is asked to leave.
            while worker in self._workers:
                worker += 1
            self._workers[worker] = True
            commands.append(m.Spawn(worker))
        commands += [m.Retire(None)] * (before - self._target)
        return commands

    def _refit(self, before: int, window: int) -> None:
        """The window for so many workers, deepened as far as before. Tickets planned beyond a smaller window are still made."""
        more = self._target - before
        if self.policy.prefetch:
            self.max_window += self._deepest * more
            self.window = max(1, self.window + self.policy.prefetch * more)
        if window:
            self.window = window
        self.max_window = max(self.max_window, self.window)

    # Lost workers: tickets are issued again, made without the row that kills, or given up

    def _worker_lost(self, event: m.WorkerLost) -> list[m.Command]:
        self._workers.pop(event.worker, None)
        commands: list[m.Command] = []
        replacement: list[m.Command] = []
        if event.refused and self._workers and not self.policy.bound:
            self._target = min(self._target, len(self._workers))  # the other workers continue without it
            self._deaths.refused()
        elif not event.expected and not event.by_host and not self.closed:
            self._deaths.count(event)
        hopeless = ""
        if not event.by_host:
            hopeless = self._deaths.hopeless(event, has_task=self._task_is_open(event.claimed))
        if hopeless:
            if not self.finished:
                self.finished = True
                commands.append(m.Finish(hopeless, event.details))
        elif len(self._workers) < self._target and not self.closed:
            # The replacement keeps the id, because bound tasks, worker info and the status page refer to it.
            self._workers[event.worker] = True
            replacement.append(m.Spawn(event.worker))
        if event.left:
            return commands + replacement
        for story in list(self._stories.values()):
            if story.state is _D:
                commands += self._recover(story, event)
        return commands + replacement  # it comes last: the tasks that it takes first are queued by then

    def _task_is_open(self, claimed: tuple[int, int, int] | None) -> bool:
        """Whether the lost worker's task is still to be done. It may have died just after its result."""
        if claimed is None:
            return False
        seq, attempt, part = claimed
        story = self._stories.get(seq)
        return (
            story is not None
            and story.state is _D
            and story.results[part] is None
            and story.tasks[part].attempt == attempt
        )

    def _recover(self, story: Story, event: m.WorkerLost) -> list[m.Command]:
        commands: list[m.Command] = []
        again: list[int] = []
        anew = False
        for number, task in enumerate(story.tasks):
            if story.results[number] is not None:
                continue
            key = (story.ticket.seq, task.attempt, number)
            claimant = story.claims.get(number)
            if key in event.queued or (
                claimant is not None and claimant != event.worker and claimant in self._workers
            ):
                continue
            if task.worker is not None and task.worker != event.worker:
                continue
            if event.worker in self._streams.given_up:
                return commands + self._void(story)
            writer_dead = key == event.claimed
            worn_out = writer_dead and not event.by_host and self._deaths.blame(story, task, event.row)
            if self.finished or worn_out:
                commands += self._give_up(story, number, event)
            else:
                again.append(number)
                anew |= task.scratch is not None and not writer_dead
        if anew:
            return commands + self._make_anew(story, story.tasks[again[0]].slot)
        for number in again:
            task = story.tasks[number]
            alone = (story.ticket.seq, task.attempt, number) == event.claimed or task.worker is not None
            commands += self._issue_again(story, number, writer_dead=alone)
        return commands

    def _issue_again(
        self, story: Story, number: int, slot: SlotRef | None = None, *, writer_dead: bool = False
    ) -> list[m.Command]:
        """Issue one task again. ``slot`` is the new slot for a split ticket's rows, if it changed.

        The old slot is free again if its only writer is dead. Otherwise nobody uses it any more.
        """
        give_back = self._slots.release if writer_dead else self._slots.retire
        old = story.tasks[number]
        story.claims.pop(number, None)
        story.attempts += 1
        self.reissued += 1
        story.move(_D, f"part {number} issued again")
        slot, scratch = slot or old.slot, old.scratch
        if scratch is not None:
            give_back(scratch)
            scratch = self._slots.acquire()
        elif slot is not None:
            give_back(slot)
            slot = self._slots.acquire()
            if not writer_dead:
                self._stray(story)
        task = Task(story.ticket, old.part, old.attempt + 1, slot, scratch, old.worker, old.pull)
        story.tasks[number] = task
        return [m.Dispatch(task)]

    def _stray(self, story: Story) -> None:
        """Count a slot that nobody will read and that an unknown writer may be filling: it takes memory all the same."""
        story.unknown_writers += 1
        self._unknown_writers += 1

    def _make_anew(self, story: Story, shared: SlotRef | None) -> list[m.Command]:
        """Issue all parts of a split ticket again, finished ones too, in another slot; except parts that were given up.

        A live worker may hold one of its tasks without having claimed it yet. It could write its rows into the batch at any later
        time, when the user already changes the batch in place, or when the slot serves another ticket.
        """
        if shared is not None:
            self._slots.retire(shared)
            self._stray(story)
        story.nbytes = story.shared_bytes = 0
        slot = self._slots.acquire()
        commands: list[m.Command] = []
        for number, result in enumerate(story.results):
            if type(result) is m.Lost:
                continue
            if result is not None:
                story.results[number] = None
                story.open_parts += 1
                self._tasks_out += 1
            commands += self._issue_again(story, number, slot)
        return commands

    def _give_up(self, story: Story, number: int, event: m.WorkerLost) -> list[m.Command]:
        story.results[number] = m.Lost(story.ticket.seq, number, event.worker, event.reason, event.details)
        story.open_parts -= 1
        self._tasks_out -= 1
        task = story.tasks[number]
        if task.worker is not None:
            self._streams.load[task.worker] -= 1
            if self.policy.streams:  # the same sample would kill every worker that continues from here
                if self._streams.end(task.worker):
                    self._plan_ended = True
                self._streams.given_up.add(task.worker)
        if task.scratch is not None:
            self._slots.retire(task.scratch)
        # The rows' slot of a split ticket stays with the other parts' results, unless its writer is unknown.
        writer_dead = (story.ticket.seq, task.attempt, number) == event.claimed
        if task.slot is not None and (not writer_dead or all(type(r) is m.Lost for r in story.results)):
            self._slots.retire(task.slot)
        return [] if story.open_parts else self._make_ready(story)

    def _void(self, story: Story) -> list[m.Command]:
        """A ticket of a stream that ended with its worker: it stays empty."""
        task = story.tasks[0]
        self._tasks_out -= 1
        if task.worker is not None:
            self._streams.load[task.worker] -= 1
        story.move(_V, "its stream was given up")
        self._drop(story)  # its slots are free: only the dead worker knew the bound task
        if self.finished:
            return []
        return [*self._reorder.put(story.ticket.seq, None), *self._finish_if_done()]

    # The end

    def _close_asked(self, event: m.CloseAsked) -> list[m.Command]:
        """From here on nothing is delivered. Tasks in progress are only tracked until they are back."""
        commands: list[m.Command] = [] if self.finished else [m.Finish()]
        self._plan_ended = True
        self.finished = True
        self.closed = True
        for story in list(self._stories.values()):
            if story.state is _R:
                self._drop(story)
        return commands

    @property
    def drained(self) -> bool:
        """Whether no task is in progress in any worker."""
        return self._tasks_out == 0

    def _finish_if_done(self) -> list[m.Command]:
        if self._plan_ended and self._open == 0 and not self.finished:
            self.finished = True
            return [m.Finish()]
        return []
