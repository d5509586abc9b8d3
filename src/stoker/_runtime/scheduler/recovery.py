"""What becomes of tickets when a worker is lost: issued again, made without the row that kills, or given up.

A part of the scheduler, in a room of its own. Its clauses are in the scheduler's docstring.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.policy import DEATHS_LIMIT, Policy
from stoker._runtime.scheduler.reorder import Reorder
from stoker._runtime.scheduler.slots import SlotTable
from stoker._runtime.scheduler.story import Story, TicketState
from stoker._runtime.scheduler.types import SlotRef, Task

_D, _V = TicketState.DISPATCHED, TicketState.VOID


class Recovery(ABC):
    """The scheduler's answers to WorkerLost. Its state is the scheduler's."""

    policy: Policy
    finished: bool
    closed: bool
    deaths: int
    reissued: int
    _slots: SlotTable
    _target: int
    _workers: dict[int, bool]
    _stopped: set[int]
    _stories: dict[int, Story]
    _reorder: Reorder[m.Deliver]
    _tasks_out: int
    _load: dict[int, int]
    _deaths_in_a_row: int
    _stillborn: int
    _killed: dict[int, dict[int, int]]
    _strays: int

    @abstractmethod
    def _make_ready(self, story: Story) -> list[m.Command]:
        """All parts are in."""

    @abstractmethod
    def _drop(self, story: Story) -> list[m.Command]:
        """Forget a ticket that will not be delivered."""

    @abstractmethod
    def _end_stream(self, worker: int) -> None:
        """No more tickets are bound to this worker."""

    @abstractmethod
    def _finish_if_done(self) -> list[m.Command]:
        """The end, if nothing is open and nothing comes."""

    def _worker_lost(self, event: m.WorkerLost) -> list[m.Command]:
        self._workers.pop(event.worker, None)
        commands: list[m.Command] = []
        replacement: list[m.Command] = []
        if event.refused and self._workers and not self.policy.bound:
            self._target = min(self._target, len(self._workers))  # the others go on without it
            self._stillborn = 0
        elif not event.expected and not self.closed:
            self.deaths += 1
            self._deaths_in_a_row += 1
            self._stillborn = 0 if event.started else self._stillborn + 1
        hopeless = self._hopeless(event)
        if hopeless:
            if not self.finished:
                self.finished = True
                commands.append(m.Finish(hopeless, event.details))
        elif len(self._workers) < self._target and not self.closed:
            # The replacement keeps the id: bound tasks, worker info and the status page all speak of it.
            self._workers[event.worker] = True
            replacement.append(m.Spawn(event.worker))
        if event.left:
            return commands + replacement
        for story in list(self._stories.values()):
            if story.state is _D:
                commands += self._recover(story, event)
        return commands + replacement  # it comes last: what it should take first is in line by then

    def _hopeless(self, event: m.WorkerLost) -> str:
        """Why no further worker is started, or nothing when one is."""
        died, restarts = self._deaths_in_a_row, self.policy.restarts
        reason = event.reason.rstrip(".")
        if self._stillborn > restarts:
            return f"{reason}: before it could take any work"
        if died >= DEATHS_LIMIT:
            return f"{reason}: {died} workers died without one batch delivered between them"
        if died and not self.policy.heal and not self._owes(event.claimed):
            return event.reason
        return ""

    def _owes(self, claimed: tuple[int, int, int] | None) -> bool:
        """Whether what a lost worker was on is still to be done: it may have died just after its result."""
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
            if event.worker in self._stopped:
                return commands + self._void(story)
            writer_dead = key == event.claimed
            worn_out = writer_dead and self._blame(story, task, event.row)
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

    def _blame(self, story: Story, task: Task, row: int) -> bool:
        """Count a death over a task; whether that was one too many.

        With ``sift`` deaths are counted by row, so that only a row that killed all of them itself is excluded, and the task goes
        on without it. Names below -1 are the worker's own words for what is no row of the ticket; they are told back to it.
        """
        ticket = story.ticket
        known = row < -1 or task.part.start <= row < max(task.part.stop, 1)
        if not self.policy.sift or not known or row in ticket.excluded:
            story.blamed += 1
            return story.blamed > self.policy.restarts
        killed = self._killed.setdefault(ticket.seq, {})
        killed[row] = killed.get(row, 0) + 1
        if killed[row] > self.policy.restarts:
            story.ticket = ticket._replace(excluded=(*ticket.excluded, row))
        return False

    def _issue_again(
        self, story: Story, number: int, slot: SlotRef | None = None, *, writer_dead: bool = False
    ) -> list[m.Command]:
        """One task once more; ``slot`` is where a split ticket's rows go from now on, when that has changed.

        What it was written to is free again if its only writer is dead; otherwise nobody uses it any more.
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
        """Somebody unknown may be filling a slot that nobody will read: it takes memory all the same."""
        story.strays += 1
        self._strays += 1

    def _make_anew(self, story: Story, shared: SlotRef | None) -> list[m.Command]:
        """All parts of a split ticket that are not given up once more, finished ones too, into another slot.

        A living worker may hold one of its tasks without having claimed it yet. It would write its rows into the batch
        at any later time, when the user already changes it in place or the slot serves another ticket.
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
            self._load[task.worker] -= 1
            if self.policy.streams:  # the same sample would kill whoever goes on from here
                self._end_stream(task.worker)
                self._stopped.add(task.worker)
        if task.scratch is not None:
            self._slots.retire(task.scratch)
        # The rows' slot of a split ticket goes with the other parts' results, if there are any and no unknown writer.
        writer_dead = (story.ticket.seq, task.attempt, number) == event.claimed
        if task.slot is not None and (not writer_dead or all(type(r) is m.Lost for r in story.results)):
            self._slots.retire(task.slot)
        return [] if story.open_parts else self._make_ready(story)

    def _void(self, story: Story) -> list[m.Command]:
        """A ticket of a stream that has ended with its worker: nothing comes of it."""
        task = story.tasks[0]
        self._tasks_out -= 1
        if task.worker is not None:
            self._load[task.worker] -= 1
        story.move(_V, "its stream was given up")
        self._drop(story)  # its slots are free: a bound task is known to the dead worker only
        if self.finished:
            return []
        return [*self._reorder.put(story.ticket.seq, None), *self._finish_if_done()]
