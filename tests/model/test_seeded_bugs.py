"""The checkers must be able to fail: each scheduler here has one bug, and one of the two finds it.

The bugs that the explorer and Hypothesis found in the scheduler itself are among them, put back in.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.deaths import DeathCounts
from stoker._runtime.scheduler.policy import Policy
from stoker._runtime.scheduler.reorder import Reorder
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker._runtime.scheduler.story import TicketState
from tests.model.checked_history import Config, Violation
from tests.model.explorer import Counterexample, explore
from tests.model.test_explorer import BOUND, EXCLUDE, EXCLUDE_AGAIN, ONE, SPLIT, TWO
from tests.model.test_scheduler_hypothesis import SchedulerMachine, check


class ForgetsUnclaimed(Scheduler):
    """Issues again only what the dead worker had claimed."""

    def _recover(self, story, event):
        key = (story.ticket.seq, story.tasks[0].attempt, 0)
        return super()._recover(story, event) if event.claimed == key else []


class ReusesTheSlot(Scheduler):
    """Frees the slot of a task that is issued again, although somebody may still write to it."""

    def _issue_again(self, story, number, slot=None, *, writer_dead=False):
        with mock.patch.object(self._slots, "retire", self._slots.release):
            return super()._issue_again(story, number, slot, writer_dead=writer_dead)


class RefusesTheHead(Scheduler):
    """Applies the budget to the ticket at the head of the line too."""

    def has_room(self):
        budget = self.policy.budget_bytes
        return super().has_room() and not (budget and self.typical_bytes > budget)


class IgnoresTheWindow(Scheduler):
    """Always has room for one more."""

    def has_room(self):
        return not self._plan_ended and not self.finished


class DeliversDuplicates(Scheduler):
    """Does not look at the attempt of a result."""

    def _accept(self, event):
        story = self._stories.get(event.seq)
        if story and story.state is TicketState.DISPATCHED:
            event = event._replace(attempt=story.tasks[event.part].attempt)
        return super()._accept(event)


class _OneLate(Reorder[m.Deliver]):
    def put(self, seq, item):
        out = super().put(seq, item)
        if len(out) > 1:  # the last one of a run is left behind
            out.pop()
        return out


class OffByOneReorder(Scheduler):
    """Leaves the last of a run of batches in the reorder buffer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reorder = _OneLate(in_order=self.policy.in_order)


class LeaksScratch(Scheduler):
    """Takes another scratch slot for a part that is issued again and forgets the first."""

    def _issue_again(self, story, number, slot=None, *, writer_dead=False):
        if story.tasks[number].scratch is not None:
            self._slots.acquire()
        return super()._issue_again(story, number, slot, writer_dead=writer_dead)


class KeepsTheSharedSlot(Scheduler):
    """Issues one part of a split ticket again into the slot that an unknown worker may still write to."""

    def _make_anew(self, story, shared):
        missing = [number for number, result in enumerate(story.results) if result is None]
        return [command for number in missing for command in self._issue_again(story, number)]


class ForgetsThePull(Scheduler):
    """Issues a bound task again without saying how far the stream had come."""

    def _issue_again(self, story, number, slot=None, *, writer_dead=False):
        story.tasks[number] = story.tasks[number]._replace(pull=0)
        return super()._issue_again(story, number, slot, writer_dead=writer_dead)


class CountsWithdrawnTwice(Scheduler):
    """Leaves the place of a withdrawn part empty."""

    def _withdrawn(self, event):
        story = self._stories.get(event.seq)
        commands = super()._withdrawn(event)
        if story is not None:
            story.results[event.part] = None
        return commands


class DeliversAfterClose(Scheduler):
    """Lets the reorder buffer go on after the end."""

    def _source_ended(self, event):
        commands = super()._source_ended(event)
        return [*commands, *self._reorder.put(event.seq, None)] if self.closed else commands


class _NeverTooMany(DeathCounts):
    def blame(self, story, task, row):
        return False


class NeverGivesUp(Scheduler):
    """Hands a deadly ticket to one worker after the other."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deaths = _NeverTooMany(self.policy)


class ForgetsTheRow(Scheduler):
    """Issues a task again as it was, with the row that is to be left out."""

    def _issue_again(self, story, number, slot=None, *, writer_dead=False):
        known, story.ticket = story.ticket, story.tasks[number].ticket
        try:
            return super()._issue_again(story, number, slot, writer_dead=writer_dead)
        finally:
            story.ticket = known


class _TheLastRow(DeathCounts):
    def blame(self, story, task, row):
        story.blamed += 1
        if story.blamed > self._policy.restarts:
            self.by_row[story.ticket.seq] = {row: self._policy.restarts}
            story.blamed = 0
        return super().blame(story, task, row)


class BlamesTheLast(Scheduler):
    """Counts the deaths of a whole ticket and blames them on the row of the last."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deaths = _TheLastRow(self.policy)


class FreesWhatTheDeviceReads(Scheduler):
    """Closing frees the slots of all batches that were not taken, also of one whose copy is under way."""

    def _drop(self, story):
        with mock.patch.object(self._slots, "is_leased", return_value=False):
            return super()._drop(story)


SMALL: dict[type[Scheduler], Config] = {
    FreesWhatTheDeviceReads: Config(ONE, tickets=1, closes=True, ahead=1),
    ForgetsUnclaimed: Config(ONE, tickets=1, kills=1),
    ReusesTheSlot: Config(TWO, tickets=2, kills=1),
    IgnoresTheWindow: Config(ONE, tickets=2),
    DeliversDuplicates: Config(ONE, tickets=1, kills=1),
    OffByOneReorder: Config(TWO, tickets=2),
    LeaksScratch: Config(SPLIT, tickets=1, rows=32, kills=1),
    KeepsTheSharedSlot: Config(SPLIT, tickets=1, rows=32, kills=1),
    ForgetsThePull: Config(BOUND, streams=(2, 1), kills=1),
    CountsWithdrawnTwice: Config(SPLIT, tickets=1, rows=32, kills=1, closes=True),
    DeliversAfterClose: Config(BOUND, streams=(0, 1), closes=True),
    NeverGivesUp: Config(ONE, tickets=1, workers=1, kills=1),
    ForgetsTheRow: Config(EXCLUDE, tickets=1, workers=1, deadly=((0, 0),)),
    BlamesTheLast: Config(EXCLUDE_AGAIN, tickets=1, workers=1, rows=2, kills=1, deadly=((0, 1),)),
    RefusesTheHead: Config(Policy(1, 1, budget_bytes=50), tickets=2),
}

SAMPLED = (
    ForgetsUnclaimed, ReusesTheSlot, IgnoresTheWindow, OffByOneReorder, ForgetsThePull, NeverGivesUp, ForgetsTheRow,
)  # fmt: skip


def _name(value: object) -> str:
    return value.__name__ if isinstance(value, type) else ""


@pytest.mark.parametrize(("buggy", "config"), SMALL.items(), ids=_name)
def test_the_explorer_finds(buggy: type[Scheduler], config: Config) -> None:
    assert isinstance(explore(config, buggy), Counterexample)
    assert not isinstance(explore(config), Counterexample), "the same world without the bug must pass"


@pytest.mark.parametrize("buggy", SAMPLED, ids=_name)
def test_hypothesis_finds(buggy: type[Scheduler]) -> None:
    machine = type("Machine", (SchedulerMachine,), {"scheduler_type": buggy})
    with pytest.raises(Violation):
        check(machine, examples=200, shrink=False)
