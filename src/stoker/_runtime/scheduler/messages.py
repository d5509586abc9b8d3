"""What flows into the scheduler (events, past tense) and out of it (commands, imperative).

Events come from the executor (workers and their results), the planner (tickets) and the consumer (taken batches,
released slots). Commands are carried out by the engine. All are named tuples, told apart by their type alone.
"""

from __future__ import annotations

from typing import NamedTuple

from stoker._runtime.scheduler.types import Receipt, SlotRef, Spans, Task, Ticket

# Events


class WorkerUp(NamedTuple):
    """A worker is ready to take tasks."""

    worker: int


class Claimed(NamedTuple):
    """A living worker says it is working on this task. Sent only when it matters: just before a WorkerLost."""

    worker: int
    seq: int
    attempt: int
    part: int


class WorkerLost(NamedTuple):
    """A worker is gone; comes exactly once, after its last message.

    ``claimed`` is the (seq, attempt, part) it was working on, if any. ``queued`` are the tasks found untouched in the
    channel and put back there. ``expected`` is true for a worker that was told to leave, ``started`` is false for one that
    died before it could take tasks. ``reason`` and ``details`` are for people: how it ended, and what is known of why. ``row`` is
    the row of the claimed ticket it was fetching, -1 when it was not fetching one (but ``collating``, say) or that is not known.
    ``refused`` tells that the system would not start it: others, if there are any, go on without. ``left`` tells that it was
    told to leave and did so between two tasks: nothing is lost with it.
    """

    worker: int
    claimed: tuple[int, int, int] | None = None
    queued: frozenset[tuple[int, int, int]] = frozenset()
    expected: bool = False
    reason: str = ""
    started: bool = True
    row: int = -1
    details: str = ""
    collating: bool = False
    refused: bool = False
    left: bool = False


class Planned(NamedTuple):
    """The planner made the next ticket. ``ranges`` are the row boundaries where it may be split; () when it may not."""

    ticket: Ticket
    ranges: tuple[tuple[int, int], ...] = ()


class PlanEnded(NamedTuple):
    """The sampler has no more."""


class BatchReady(NamedTuple):
    """A worker finished a part; its result lies where the receipt says."""

    seq: int
    attempt: int
    part: int
    worker: int
    slot: SlotRef | None
    scratch: SlotRef | None
    receipt: Receipt
    spans: Spans


class BatchFailed(NamedTuple):
    """A worker could not make a part; the receipt leads to the exception."""

    seq: int
    attempt: int
    part: int
    worker: int
    slot: SlotRef | None
    scratch: SlotRef | None
    receipt: Receipt
    spans: Spans


class SourceEnded(NamedTuple):
    """A worker's iterable stream has no more batches; the ticket it was asked for stays empty.

    ``final_state`` is what its dataset said of itself then.
    """

    seq: int
    attempt: int
    part: int
    worker: int
    slot: SlotRef | None
    scratch: SlotRef | None
    final_state: object | None = None


class Withdrawn(NamedTuple):
    """A task was taken back from the channel before any worker saw it. Comes only after CloseAsked."""

    seq: int
    attempt: int
    part: int


class Starved(NamedTuple):
    """The consumer asked for a batch that is not there and is about to wait."""


class Taken(NamedTuple):
    """The consumer took the batch of this ticket."""

    seq: int


class Released(NamedTuple):
    """The last view of a slot died and its device fence, if any, is done."""

    slot: SlotRef
    fence: object | None = None


class Held(NamedTuple):
    """A worker keeps a reference into a slot beyond its task; comes before the task's result."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    worker: int


class Unheld(NamedTuple):
    """A worker dropped its last reference into a slot it had kept beyond its task."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    worker: int


class SplitRefused(NamedTuple):
    """The parts of a ticket did not fit together: this dataset is not to be split again."""


class ResizeAsked(NamedTuple):
    """The number of workers is to become ``workers``, and the window ``window``; 0: it follows the workers."""

    workers: int
    window: int = 0


class CloseAsked(NamedTuple):
    """The iteration is over, whatever is still on its way."""


Event = (
    WorkerUp
    | Claimed
    | WorkerLost
    | Planned
    | PlanEnded
    | BatchReady
    | BatchFailed
    | SourceEnded
    | Withdrawn
    | Starved
    | Taken
    | Released
    | Held
    | Unheld
    | SplitRefused
    | ResizeAsked
    | CloseAsked
)

# Commands


class Spawn(NamedTuple):
    """Start a worker with this id."""

    worker: int


class Dispatch(NamedTuple):
    """Give this task to its worker, or to whoever is idle first."""

    task: Task


class Lost(NamedTuple):
    """Stands for the result of a part whose worker died more often than ``restarts`` allows."""

    seq: int
    part: int
    worker: int
    reason: str
    details: str = ""


class Deliver(NamedTuple):
    """Hand this batch over next. ``results`` holds one entry per part, in row order."""

    ticket: Ticket
    results: tuple[BatchReady | BatchFailed | Lost, ...]


class Retire(NamedTuple):
    """Let a worker leave after its current task; ``worker`` is None when any one will do."""

    worker: int | None


class Finish(NamedTuple):
    """Nothing more will be delivered. ``reason`` is empty at the regular end."""

    reason: str = ""
    details: str = ""


Command = Spawn | Dispatch | Deliver | Retire | Finish
