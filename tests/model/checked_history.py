"""The model's own account of every ticket, kept apart from the scheduler's so that the two can disagree."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.policy import Policy
from stoker._runtime.scheduler.types import Task, Ticket

Key = tuple[int, int, int]
"""Ticket number, attempt and part: what names a task in claims and in the channel."""


class Violation(AssertionError):
    """Something happened that must never happen."""


@dataclass(frozen=True, slots=True)
class Config:
    """How large a world is and what may go wrong in it.

    ``streams`` gives each worker's number of batches for an iterable dataset; () means a map-style one with ``tickets``
    tickets. ``hold`` is how many batches the consumer keeps; up to 1 it keeps them as long as it can (which is what
    endangers slots most), above that it lets go of any of them at any time. ``deadly`` are rows, as (ticket, row), that no worker
    survives; other deaths (``kills``) happen on the first row of a task. With ``ahead`` batches go to a device: so many may be
    staged before they are taken, and each copy is done at any later time.
    """

    policy: Policy
    tickets: int = 0
    workers: int = 2
    rows: int = 1
    streams: tuple[int, ...] = ()
    kills: int = 0
    fails: int = 0
    resizes: tuple[int, ...] = ()
    closes: bool = False
    hold: int = 1
    deadly: tuple[tuple[int, int], ...] = ()
    ahead: int = 0


def key_of(task: Task) -> Key:
    """The name of a task."""
    return (task.ticket.seq, task.attempt, task.part.number)


class CheckedHistory:
    """What was dispatched, received, blamed and delivered. Told by the world, before or as the scheduler is."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.planned = 0
        self.taken = 0
        self.void = 0
        self.given_up = 0
        self.stopped: dict[int, int] = {}
        self.sized = False
        self.latest: dict[int, list[Task]] = {}
        self.accepted: set[Key] = set()
        self.blame: dict[int, int] = {}
        self.deaths: dict[tuple[int, int], int] = {}
        self.delivered: list[tuple[int, int, int | None, bool]] = []

    @property
    def open_tickets(self) -> int:
        """Tickets planned and neither taken nor void."""
        return self.planned - self.taken - self.void

    def awaits(self, key: Key) -> bool:
        """Whether a result of this task is still wanted: it is the last attempt and nothing came of it yet."""
        seq, attempt, part = key
        tasks = self.latest.get(seq)
        return tasks is not None and tasks[part].attempt == attempt and key not in self.accepted

    def dispatched(self, task: Task) -> None:
        """A task leaves the scheduler: a first attempt, or the one after the last."""
        seq, attempt, number = key_of(task)
        if any(seq == other for other, *_ in self.delivered):
            raise Violation(f"ticket {seq} is delivered and issued again")
        tasks = self.latest.setdefault(seq, [])
        if number == len(tasks) and attempt == 0:
            tasks.append(task)
            return
        if attempt != tasks[number].attempt + 1:
            raise Violation(f"ticket {seq} part {number}: attempt {attempt} follows {tasks[number].attempt}")
        if task.pull != tasks[number].pull:
            raise Violation(f"ticket {seq}: pull {tasks[number].pull} became {task.pull} when issued again")
        tasks[number] = task

    def received(self, event: m.BatchReady | m.BatchFailed | m.SourceEnded) -> None:
        """A worker's result reaches the parent."""
        key = (event.seq, event.attempt, event.part)
        if self.awaits(key):
            self.accepted.add(key)
            self.sized |= type(event) is m.BatchReady
            self.void += type(event) is m.SourceEnded

    def died_over(self, key: Key, row: int) -> None:
        """A worker died while its status page named this task and row."""
        if not self.awaits(key):
            return
        seq = key[0]
        if not self.config.policy.exclude_killers or row < 0:
            self.blame[seq] = self.blame.get(seq, 0) + 1
            if self.config.policy.streams and self.blame[seq] > self.config.policy.restarts:
                self._stop_stream(seq)
            return
        self.deaths[seq, row] = self.deaths.get((seq, row), 0) + 1
        if self.deaths[seq, row] > self.config.policy.restarts + 1:
            raise Violation(f"row {row} of ticket {seq} was fetched again after it was found to kill")

    def _stop_stream(self, seq: int) -> None:
        """A ticket of a stream is given up, and with it all later ones of that stream: nobody would get past it."""
        [task] = self.latest[seq]
        assert task.worker is not None
        self.stopped[task.worker] = task.pull
        for other, [later] in list(self.latest.items()):
            if later.worker == task.worker and other > seq and self.awaits(key_of(later)):
                del self.latest[other]
                self.void += 1
                self.given_up += 1

    def deliver(self, deliver: m.Deliver) -> None:
        """A batch is handed over: once, in its turn, whole, and made of the last attempts."""
        seq = deliver.ticket.seq
        if any(seq == other for other, *_ in self.delivered):
            raise Violation(f"ticket {seq} is delivered twice")
        if self.config.policy.in_order and self.delivered and self.delivered[-1][0] > seq:
            raise Violation(f"ticket {seq} is delivered after {self.delivered[-1][0]}")
        tasks = self.latest[seq]
        if [result.part for result in deliver.results] != [task.part.number for task in tasks]:
            raise Violation(f"ticket {seq} of {len(tasks)} parts is delivered as {deliver.results}")
        lost = 0
        for task, result in zip(tasks, deliver.results, strict=True):
            if isinstance(result, m.Lost):
                lost += 1
            elif (result.attempt, result.slot, result.scratch) != (task.attempt, task.slot, task.scratch):
                raise Violation(f"ticket {seq}: the result {result} is not of its last task {task}")
        blame = self.blame.pop(seq, 0)
        if bool(lost) != (blame > self.config.policy.restarts):
            raise Violation(f"ticket {seq} cost {blame} workers and has {lost} lost parts")
        self._check_excluded(deliver.ticket, lost)
        self.given_up += lost
        self.delivered.append((seq, tasks[0].pull, tasks[0].worker, bool(lost)))
        # States that differ only in how a delivered ticket came about are one state.
        self.accepted = {key for key in self.accepted if key[0] != seq}
        del self.latest[seq]

    def _check_excluded(self, ticket: Ticket, lost: int) -> None:
        """Exactly the rows that killed more workers than are restarted are left out, each once."""
        seq = ticket.seq
        died = {row: self.deaths.pop((seq, row)) for of, row in list(self.deaths) if of == seq}
        guilty = sorted(row for row, times in died.items() if times > self.config.policy.restarts)
        if sorted(ticket.excluded) != guilty:
            raise Violation(f"ticket {seq} goes without rows {ticket.excluded}, those that kill are {guilty}")
        missed = [row for of, row in self.config.deadly if of == seq and row not in guilty]
        if missed and not lost:
            raise Violation(f"ticket {seq} is delivered with rows {missed}, which nobody survives")

    def check_complete(self) -> None:
        """At the regular end: every ticket was delivered, or every stream to its end and in turn."""
        streams = self.config.streams
        if not streams:
            if sorted(seq for seq, *_ in self.delivered) != list(range(self.config.tickets)):
                raise Violation(f"delivered {self.delivered} of {self.config.tickets} tickets")
            return
        expected = sorted(
            (pull, worker)
            for worker, size in enumerate(streams)
            for pull in range(min(size, self.stopped.get(worker, size) + 1))
        )
        made = [
            (pull, worker)
            for _, pull, worker, lost in self.delivered
            # A worker may die once too often while asked for what would turn out to be the end of its stream.
            if not lost or (pull, worker) in expected
        ]
        if (made if self.config.policy.in_order else sorted(made)) != expected:
            raise Violation(f"delivered {made}, the streams in turn are {expected}")
