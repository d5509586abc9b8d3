"""What the parent does for and asks of idle worker processes: being weighed, and letting go of caches.

To let go, a number goes to the status page and one wake-up per worker into the task channel. The number is the order; the message
only makes a worker look at it, so one that gets two of them does nothing the second time. Pull workers share a channel: one of
them might take the wake-up of another, who then looks after its next task, or never if an epoch begins first, which takes the
order back. Nobody waits for anybody, so nothing can hang.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stoker._executors.base import Weight
from stoker._executors.channels import TaskChannel
from stoker._executors.member import Member
from stoker._metrics.processes import footprint
from stoker._worker import wire
from stoker._worker.status import PRIVATE_BYTES, TRIM, StatusPage

_WAKE_UP = wire.pack_task(wire.VERSION, wire.TaskKind.LOOK, *(0,) * (len(wire.TaskHeader._fields) - 2))


def order_trim(page: StatusPage, number: int, channels: Iterable[TaskChannel]) -> None:
    """Ask all workers behind these channels to let go of caches; one channel for each worker, the same one for pull workers."""
    page.control[TRIM] = number
    for channel in channels:
        if not channel.backlog:  # it is full of unread messages: whoever takes one of them looks afterwards
            channel.send(_WAKE_UP)


def weigh(page: StatusPage, members: Mapping[int, Member]) -> list[Weight]:
    """What each worker process occupies."""
    weights = []
    for worker, member in sorted(members.items()):
        pid = member.process.pid
        size = footprint(pid)
        baseline = page.row(worker)[PRIVATE_BYTES]
        pss, private = (None, None) if size is None else size
        weights.append(Weight(worker, pid, pss, private, baseline if baseline > 0 else None))
    return weights
