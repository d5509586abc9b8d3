"""A nondeterministic world around the real scheduler: channel, workers, parent and consumer, all of them models.

    planner ──plan──► Scheduler ──Dispatch──► channel ──receive──► worker ──finish──► outbox ──hear──► Scheduler
                          │                                    └─kill, fall─► dead ──bury (WorkerLost)──►──┘
                          └──Deliver──► hand-off ──take──► leases ──release──► Scheduler
                                             └─stage─► copies ──copied──►──┘

`steps()` names everything that may happen next and `do()` lets one of it happen, then checks what must hold in every
state. Whoever drives (the exhaustive explorer, Hypothesis, a pinned counterexample) only chooses. What must hold when
nothing can happen any more is in `check_end`.

The model knows one uncertainty that the parent has too: a worker that has received a task and not yet recorded its claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.row_ranges import row_ranges
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker._runtime.scheduler.slots import SlotState, SlotTable
from stoker._runtime.scheduler.types import Receipt, SlotRef, Spans, Task, Ticket
from stoker.errors import IllegalMove
from tests.model.checked_history import CheckedHistory, Config, Key, Violation, key_of

BATCH_BYTES = 100
SLOW = Spans(received_ns=1, sent_ns=1 + (1 << 40))
"""So long that splitting always pays."""


class Step(NamedTuple):
    """One thing that may happen next; ``arg`` is a worker, a number of workers or 0."""

    kind: str
    arg: int = 0


class Worker:
    """A worker process as seen from outside. Idle without a task; ``claimed`` is what its status page says."""

    __slots__ = ("claimed", "outbox", "position", "row", "task")

    def __init__(self) -> None:
        self.task: Task | None = None
        self.claimed: Key | None = None
        self.outbox: list[m.Event] = []
        self.position = 0
        self.row = -1


class World:
    """One run. All state is here, so that it can be cloned and compared."""

    def __init__(self, config: Config, scheduler_type: type[Scheduler] = Scheduler) -> None:
        self.config = config
        self.slots = SlotTable()
        self.scheduler = scheduler_type(config.policy, self.slots, config.workers)
        self.channel: list[Task] = []
        self.own: dict[int, list[Task]] = {worker: [] for worker in range(config.workers)}
        self.alive: dict[int, Worker] = {worker: Worker() for worker in range(config.workers)}
        self.dead: dict[int, Worker] = {}
        self.spawning: list[int] = []
        self.leaving = 0
        self.untaken: list[m.Deliver] = []
        self.leases: list[tuple[SlotRef, ...]] = []
        self.copies: list[tuple[SlotRef, ...]] = []
        """Slots that a device reads."""
        self.staged: list[int] = []
        """Tickets whose copies were begun before they were taken."""
        self.history = CheckedHistory(config)
        self.plan_ended = False
        self.kills = config.kills
        self.fails = config.fails
        self.resizes = list(config.resizes)
        self.planned_before = 0
        """Tickets that were open when the window became smaller, as long as they are."""
        self.closed = False
        self.finish: str | None = None
        self.starving = False

    # What may happen

    def steps(self) -> list[Step]:
        """Everything that may happen next; empty when the run is over (or stuck: see `check_end`)."""
        out: list[Step] = []
        self._planner_steps(out)
        if out and out[0].kind == "end_plan":
            return out  # it commutes with all the rest, so one order is enough
        for number, worker in self.alive.items():
            self._worker_steps(number, worker, out)
        for number in self.dead:
            out.append(Step("bury", number))
            if any(worker.outbox for worker in self.alive.values()):
                out.append(Step("drain_and_bury", number))
        out.extend(Step("spawn", number) for number in self.spawning)
        if self.resizes and not self.scheduler.finished:
            out.append(Step("resize", self.resizes[0]))
        if self.config.hold > 1 or self.finish is not None:
            out.extend(Step("release", place) for place in range(len(self.leases)))
        out.extend(
            Step("copied", place) for place in range(min(1, len(self.copies)))
        )  # one stream: in their order
        if self.closed:
            if self.channel or any(self.own.values()):
                out.append(Step("withdraw"))
            return out
        if self.untaken:
            out.append(Step("take"))
        out.extend(
            Step("stage", place)
            for place, deliver in enumerate(self.untaken[: self.config.ahead])
            if deliver.ticket.seq not in self.staged and _is_whole(deliver)
        )
        if (
            self.config.policy.max_window > self.config.policy.window
            and not self.untaken
            and not self.starving
        ):
            out.append(Step("starve"))
        if self.finish or (self.config.closes and self.finish is None):
            out.append(Step("close"))
        return out

    def _planner_steps(self, out: list[Step]) -> None:
        if self.plan_ended or not self.scheduler.has_room():
            return
        if self.config.streams or self.history.planned < self.config.tickets:
            out.append(Step("plan"))
        else:
            out.append(Step("end_plan"))

    def _worker_steps(self, number: int, worker: Worker, out: list[Step]) -> None:
        if worker.task is None:
            if self.own.get(number) if self.config.policy.bound else self.channel:
                out.append(Step("receive", number))
            if self.leaving and not worker.outbox and not self.config.policy.bound:
                out.append(Step("leave", number))
        elif worker.claimed is None:
            out.append(Step("claim", number))
        elif self._deadly_row(worker.task) >= 0:
            out.append(Step("fall", number))
        else:
            out.append(Step("finish", number))
            if self.fails and not self._at_end(number, worker.task):
                out.append(Step("fail", number))
        if worker.outbox:
            out.append(Step("hear", number))
        if self.kills:
            out.append(Step("kill", number))

    def do(self, step: Step) -> None:
        """Let one step happen and check what must hold ever after."""
        getattr(self, f"_{step.kind}")(step.arg)
        self.check()

    def _coarse(self) -> bool:
        # Nobody can die any more: a message on its way is then no different from a worker that is slower.
        return not self.kills and not self.dead and not self.config.deadly

    # The planner and the consumer

    def _plan(self, _: int) -> None:
        history = self.history
        seq = history.planned
        rows = self.config.rows
        ticket = Ticket(epoch=0, seq=seq, position=seq, indices=None, seed=0, rows=rows)
        ranges = row_ranges(rows) if self.config.policy.split else ()
        history.planned += 1
        self.feed(m.Planned(ticket, ranges))
        if seq not in history.latest:
            raise Violation(f"ticket {seq} was planned and not dispatched")
        budget = self.config.policy.budget_bytes
        # Exact only where every batch has its full size: none failed, none was lost, no part is still missing.
        exact = not (self.config.fails or self.config.kills or self.config.policy.split)
        count = history.open_tickets
        if budget and exact and history.sized and count > 1 and count * BATCH_BYTES > budget:
            raise Violation(f"{count} batches of {BATCH_BYTES} bytes are open with a budget of {budget}")

    def _end_plan(self, _: int) -> None:
        self.plan_ended = True
        self.feed(m.PlanEnded())

    def _take(self, _: int) -> None:
        deliver = self.untaken.pop(0)
        self.history.taken += 1
        refs = _all_refs(deliver)
        if deliver.ticket.seq in self.staged:
            self.staged.remove(deliver.ticket.seq)
        elif _is_whole(deliver):
            for ref in refs:
                self.slots.lease(ref)
            (self.copies if self.config.ahead else self.leases).append(refs)
        else:  # an error is raised in the consumer's face; nothing keeps the memory
            for ref in refs:
                self.feed(m.Released(ref))
        self.starving = False
        self.feed(m.Taken(deliver.ticket.seq))
        if len(self.leases) > self.config.hold:
            self._release(0)

    def _stage(self, place: int) -> None:
        deliver = self.untaken[place]
        refs = _all_refs(deliver)
        for ref in refs:
            self.slots.lease(ref)
        self.staged.append(deliver.ticket.seq)
        self.copies.append(refs)

    def _copied(self, place: int) -> None:
        for ref in self.copies.pop(place):
            self.feed(m.Released(ref))

    def _release(self, place: int) -> None:
        for ref in self.leases.pop(place):
            self.feed(m.Released(ref))

    def _starve(self, _: int) -> None:
        self.starving = True
        self.feed(m.Starved())

    def _close(self, _: int) -> None:
        self.closed = True
        self.untaken.clear()
        self.staged.clear()
        self.feed(m.CloseAsked())

    def _withdraw(self, _: int) -> None:
        queue = self.channel or next(queue for queue in self.own.values() if queue)
        task = queue.pop(0)
        self.feed(m.Withdrawn(task.ticket.seq, task.attempt, task.part.number))

    def _resize(self, workers: int) -> None:
        self.resizes.pop(0)
        self.feed(m.ResizeAsked(workers))
        self.planned_before = self.scheduler.open_tickets

    # Workers

    def _receive(self, number: int) -> None:
        worker = self.alive[number]
        queue = self.own[number] if self.config.policy.bound else self.channel
        task = worker.task = queue.pop(0)
        if self.config.policy.bound:
            if task.worker != number:
                raise Violation(f"worker {number} was given a task bound to {task.worker}")
            if task.pull < worker.position:
                raise Violation(
                    f"worker {number} is past pull {worker.position} and is asked for pull {task.pull} again"
                )
            worker.position = task.pull + 1
        if self._coarse():
            worker.claimed = key_of(task)

    def _claim(self, number: int) -> None:
        worker = self.alive[number]
        assert worker.task is not None
        worker.claimed = key_of(worker.task)

    def _finish(self, number: int) -> None:
        task = self.alive[number].task
        assert task is not None
        seq, attempt, part = key_of(task)
        if self._at_end(number, task):
            self._send(number, m.SourceEnded(seq, attempt, part, number, task.slot, task.scratch))
            return
        receipt = Receipt(nbytes=BATCH_BYTES // task.part.count)
        self._send(number, m.BatchReady(seq, attempt, part, number, task.slot, task.scratch, receipt, SLOW))

    def _at_end(self, number: int, task: Task) -> bool:
        return bool(self.config.streams) and task.pull >= self.config.streams[number]

    def _fail(self, number: int) -> None:
        self.fails -= 1
        task = self.alive[number].task
        assert task is not None
        seq, attempt, part = key_of(task)
        self._send(
            number, m.BatchFailed(seq, attempt, part, number, task.slot, task.scratch, Receipt(), SLOW)
        )

    def _send(self, number: int, event: m.Event) -> None:
        worker = self.alive[number]
        worker.task = worker.claimed = None
        worker.outbox.append(event)
        if self._coarse():
            while worker.outbox:
                self._hear(number)

    def _hear(self, number: int) -> None:
        self.feed(self.alive[number].outbox.pop(0))

    def _kill(self, number: int) -> None:
        self.kills -= 1
        worker = self.dead[number] = self.alive.pop(number)
        if worker.claimed is not None and worker.task is not None and self.config.policy.exclude_killers:
            part = worker.task.part
            left = (row for row in range(part.start, part.stop) if row not in worker.task.ticket.excluded)
            worker.row = next(left, -1)

    def _fall(self, number: int) -> None:
        worker = self.dead[number] = self.alive.pop(number)
        assert worker.task is not None
        worker.row = self._deadly_row(worker.task)

    def _deadly_row(self, task: Task) -> int:
        """The first row of a task that ends its worker; -1 when there is none, or none any more."""
        ticket, part = task.ticket, task.part
        deadly = (
            row for seq, row in self.config.deadly if seq == ticket.seq and part.start <= row < part.stop
        )
        return min((row for row in deadly if row not in ticket.excluded), default=-1)

    def _leave(self, number: int) -> None:
        self.leaving -= 1
        del self.alive[number]
        self._report_lost(number, None, expected=True, left=True)

    def _drain_and_bury(self, number: int) -> None:
        for other, worker in self.alive.items():
            while worker.outbox:
                self._hear(other)
        self._bury(number)

    def _bury(self, number: int) -> None:
        worker = self.dead.pop(number)
        for event in worker.outbox:
            self.feed(event)
        if worker.claimed is not None:
            self.history.died_over(worker.claimed, worker.row)
        self._report_lost(number, worker.claimed, expected=False, row=worker.row)

    def _report_lost(
        self, number: int, claimed: Key | None, *, expected: bool, row: int = -1, left: bool = False
    ) -> None:
        for other, worker in (*self.alive.items(), *self.dead.items()):
            if worker.claimed is not None:
                self.feed(m.Claimed(other, *worker.claimed))
        queued = frozenset(key_of(task) for task in self.channel)
        # A bound channel dies with its worker: what lay in it is issued again, in order, for the replacement.
        self.own[number] = []
        self.feed(m.WorkerLost(number, claimed, queued, expected, "killed", row=row, left=left))

    def _spawn(self, number: int) -> None:
        self.spawning.remove(number)
        self.alive[number] = Worker()
        self.feed(m.WorkerUp(number))

    # What the engine does with events and commands

    def feed(self, event: m.Event) -> None:
        """Tell the scheduler and carry out what it says."""
        if isinstance(event, m.BatchReady | m.BatchFailed | m.SourceEnded):
            self.history.received(event)
        try:
            commands = self.scheduler.handle(event)
        except IllegalMove as error:
            raise Violation(f"illegal move: {error}") from error
        for command in commands:
            match command:
                case m.Dispatch(task):
                    self.history.dispatched(task)
                    (self.channel if task.worker is None else self.own[task.worker]).append(task)
                case m.Deliver():
                    if self.finish is not None:
                        raise Violation(f"ticket {command.ticket.seq} is delivered after the finish")
                    self.history.deliver(command)
                    self.untaken.append(command)
                case m.Spawn(worker):
                    if worker in self.alive or worker in self.spawning:
                        raise Violation(f"worker {worker} is spawned while it lives")
                    self.spawning.append(worker)
                    self.own.setdefault(worker, [])
                case m.Retire():
                    self.leaving += 1
                case m.Finish(reason):
                    if self.finish is not None:
                        raise Violation("finished twice")
                    self.finish = reason

    # What must hold

    def check(self) -> None:
        """What must hold in every state."""
        scheduler = self.scheduler
        self.planned_before = min(self.planned_before, scheduler.open_tickets)
        if scheduler.open_tickets > max(1, scheduler.window, self.planned_before):
            raise Violation(f"{scheduler.open_tickets} open tickets in a window of {scheduler.window}")
        if not self.closed and self.finish is None and scheduler.open_tickets != self.history.open_tickets:
            raise Violation(
                f"the scheduler counts {scheduler.open_tickets} open tickets, there are {self.history.open_tickets}"
            )
        for number, worker in self.alive.items():
            if worker.task is not None:
                self._check_writer(number, worker.task)
        for refs in (*self.leases, *self.copies):
            for ref in refs:
                if not self.slots_is(ref, SlotState.LEASED):
                    raise Violation(
                        f"slot {ref} is the user's, or a copy reads it, and {self.slots.state(ref.index).value}"
                    )
        if self.slots.leased != sum(len(refs) for refs in (*self.leases, *self.copies)):
            raise Violation(f"{self.slots.leased} leases are counted")

    def _check_writer(self, number: int, task: Task) -> None:
        for ref in (task.slot, task.scratch):
            if ref is None or self.slots.state(ref.index) is SlotState.RETIRED:
                continue
            if not self.slots_is(ref, SlotState.BUSY):
                raise Violation(
                    f"worker {number} writes {key_of(task)} to slot {ref}, which is not its own any more"
                )

    def slots_is(self, ref: SlotRef, state: SlotState) -> bool:
        """Whether this use of a slot is the current one and in this state."""
        return self.slots._generations[ref.index] == ref.generation and self.slots.state(ref.index) is state

    def check_end(self) -> None:
        """What must hold when nothing can happen any more."""
        scheduler = self.scheduler
        if not scheduler.finished or self.finish is None:
            raise Violation("deadlock: nothing can happen and the run is not finished")
        if not scheduler.drained:
            raise Violation("nothing can happen and the scheduler waits for results")
        if scheduler.open_tickets:
            raise Violation(f"{scheduler.open_tickets} tickets stay open")
        if not self.closed:
            self.history.check_complete()
            if self.config.resizes and not self.finish and len(self.alive) != scheduler.target:
                raise Violation(f"{len(self.alive)} workers are left, and there are to be {scheduler.target}")
        states = [self.slots.state(index) for index in range(len(self.slots))]
        kept = [state.value for state in states if state not in (SlotState.FREE, SlotState.RETIRED)]
        if kept:
            raise Violation(f"slots are not given back: {kept}")
        # A split ticket that is made anew gives up its rows' slot as well as the scratch slots.
        allowed = (scheduler.reissued + self.history.given_up) * (2 if self.config.policy.split else 1)
        if not self.closed and states.count(SlotState.RETIRED) > allowed:
            raise Violation(
                f"{states.count(SlotState.RETIRED)} slots are retired, {allowed} would be explained"
            )


def _is_whole(deliver: m.Deliver) -> bool:
    return all(type(result) is m.BatchReady for result in deliver.results)


def _all_refs(deliver: m.Deliver) -> tuple[SlotRef, ...]:
    return tuple(dict.fromkeys(ref for result in deliver.results for ref in _refs(result)))


def _refs(result: m.BatchReady | m.BatchFailed | m.Lost) -> Sequence[SlotRef]:
    if isinstance(result, m.Lost):
        return ()
    return [ref for ref in (result.slot, result.scratch) if ref is not None]
