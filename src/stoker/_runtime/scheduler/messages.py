"""The scheduler's inputs (events, past tense) and outputs (commands, imperative).

Events come from the executor (workers and results), the planner (tickets) and the consumer (taken batches, released slots). The
engine carries out the commands. All are named tuples, and their type alone tells them apart.
"""

from __future__ import annotations

from typing import NamedTuple

from stoker._runtime.scheduler.types import Receipt, SlotRef, Spans, Task, Ticket

# Events


class WorkerUp(NamedTuple):
    """A worker is ready to take tasks."""

    worker: int


class Claimed(NamedTuple):
    """A live worker says that it works on this task. Sent only where it matters: just before a WorkerLost."""

    worker: int
    seq: int
    attempt: int
    part: int


class WorkerLost(NamedTuple):
    """A worker is gone. Comes exactly once, after the worker's last message.

    - ``claimed``: the (seq, attempt, part) that it worked on, if any.
    - ``queued``: the tasks that were found untouched in its channel and put back there.
    - ``expected``: the worker had been asked to leave.
    - ``started``: False if it died before it could take tasks.
    - ``reason`` and ``details``: for people, how it ended and why.
    - ``row``: the row of the claimed ticket that it was fetching; -1 if it fetched none (it was ``collating``, say) or if
      unknown.
    - ``refused``: the system did not start it. The other workers, if any, continue without it.
    - ``left``: it left between two tasks, as asked. Nothing is lost with it.
    - ``by_host``: it was lost with its host or the way there. That says nothing about its task, so it is blamed on nobody.
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
    by_host: bool = False


class Planned(NamedTuple):
    """The planner made the next ticket. ``ranges`` are the row boundaries where it may be split; () if it may not."""

    ticket: Ticket
    ranges: tuple[tuple[int, int], ...] = ()


class PlanEnded(NamedTuple):
    """The sampler has no more tickets."""


class BatchReady(NamedTuple):
    """A worker finished a part. The receipt says where the result is."""

    seq: int
    attempt: int
    part: int
    worker: int
    slot: SlotRef | None
    scratch: SlotRef | None
    receipt: Receipt
    spans: Spans


class BatchFailed(NamedTuple):
    """A worker could not make a part. The receipt leads to the exception."""

    seq: int
    attempt: int
    part: int
    worker: int
    slot: SlotRef | None
    scratch: SlotRef | None
    receipt: Receipt
    spans: Spans


class SourceEnded(NamedTuple):
    """A worker's iterable stream has no more batches. The ticket that asked for one stays empty.

    ``final_state`` is the dataset's state at that point.
    """

    seq: int
    attempt: int
    part: int
    worker: int
    slot: SlotRef | None
    scratch: SlotRef | None
    final_state: object | None = None


class Withdrawn(NamedTuple):
    """A task was removed from the channel before any worker saw it. Comes only after CloseAsked."""

    seq: int
    attempt: int
    part: int


class Starved(NamedTuple):
    """The consumer asked for a batch that is not ready and is about to wait."""


class Taken(NamedTuple):
    """The consumer took the batch of this ticket."""

    seq: int


class Released(NamedTuple):
    """The last view of a slot is gone and its device fence, if any, is done."""

    slot: SlotRef
    fence: object | None = None


class Held(NamedTuple):
    """A worker keeps a reference into a slot beyond its task. Comes before the task's result."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    worker: int


class Unheld(NamedTuple):
    """A worker dropped the last reference that it kept into a slot."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    worker: int


class SplitRefused(NamedTuple):
    """The parts of a ticket did not fit together. Batches of this dataset are not split again."""


class ResizeAsked(NamedTuple):
    """The number of workers shall become ``workers``, and the window ``window``. 0: the window follows the workers."""

    workers: int
    window: int = 0


class CloseAsked(NamedTuple):
    """The iteration is over, whatever is still in progress."""


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
    """Give this task to its worker, or to the first idle worker."""

    task: Task


class Lost(NamedTuple):
    """Takes the place of a part's result when its workers died more often than ``restarts`` allows."""

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
    """Let a worker leave after its current task. ``worker`` is None if any worker will do."""

    worker: int | None


class Finish(NamedTuple):
    """Nothing more will be delivered. ``reason`` is empty at the regular end."""

    reason: str = ""
    details: str = ""


Command = Spawn | Dispatch | Deliver | Retire | Finish
