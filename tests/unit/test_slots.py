"""Slots: one user at a time, stale references harmless, retired ones never back."""

from __future__ import annotations

import pytest

from stoker._runtime.scheduler.slots import SlotState, SlotTable
from stoker._runtime.scheduler.types import SlotRef
from stoker.errors import IllegalMove


def free(slots: SlotTable) -> int:
    """How many slots could be handed out without growing."""
    return len(slots.coldest(0))


def test_grows_when_none_is_free_and_reuses_the_warmest() -> None:
    slots = SlotTable()
    first, second = slots.acquire(), slots.acquire()
    assert (first, second) == (SlotRef(0, 1), SlotRef(1, 1))
    slots.release(first)
    slots.release(second)
    assert free(slots) == 2
    assert slots.acquire() == SlotRef(1, 2)
    assert slots.acquire() == SlotRef(0, 2)
    assert len(slots) == slots.live == 2


def test_a_lease_is_counted_until_it_is_released() -> None:
    slots = SlotTable()
    ref = slots.acquire()
    slots.lease(ref)
    assert (slots.state(0), slots.leased) == (SlotState.LEASED, 1)
    assert slots.release(ref)
    assert (slots.state(0), slots.leased) == (SlotState.FREE, 0)


def test_giving_back_a_stale_reference_changes_nothing() -> None:
    slots = SlotTable()
    old = slots.acquire()
    slots.release(old)
    assert not slots.release(old), "twice"
    new = slots.acquire()
    assert not slots.release(old), "late"
    slots.retire(old)
    assert slots.state(new.index) is SlotState.BUSY
    assert free(slots) == 0


@pytest.mark.parametrize("end", ["release", "retire"])
def test_what_is_not_busy_cannot_be_leased(end: str) -> None:
    slots = SlotTable()
    ref = slots.acquire()
    getattr(slots, end)(ref)
    with pytest.raises(IllegalMove):
        slots.lease(ref)
    assert slots.leased == 0


def test_a_stale_reference_cannot_be_leased() -> None:
    slots = SlotTable()
    old = slots.acquire()
    slots.release(old)
    slots.acquire()
    with pytest.raises(IllegalMove, match="generation 1"):
        slots.lease(old)
    assert slots.leased == 0


def test_a_free_slot_cannot_be_retired() -> None:
    slots = SlotTable()
    ref = slots.acquire()
    slots.release(ref)
    with pytest.raises(IllegalMove):
        slots.retire(ref)


def test_a_retired_slot_never_comes_back() -> None:
    slots = SlotTable()
    ref = slots.acquire()
    slots.retire(ref)
    slots.retire(ref)
    assert not slots.release(ref)
    assert (free(slots), slots.live, len(slots)) == (0, 0, 1)
    assert slots.acquire().index == 1


def test_what_a_forked_child_reads_is_not_reused_while_it_lives() -> None:
    slots = SlotTable()
    leased, busy = slots.acquire(), slots.acquire()
    slots.lease(leased)
    slots.hold_leased(-1)
    slots.release(leased)
    slots.release(busy)
    assert slots.leased == 0
    assert slots.acquire().index == busy.index, "what was not leased then is free"
    assert free(slots) == 0
    slots.forget_worker(-1)
    assert slots.acquire().index == leased.index


def test_a_held_slot_waits_for_the_last_hold() -> None:
    slots = SlotTable()
    ref = slots.acquire()
    slots.hold(ref.index, 0)
    slots.hold(ref.index, 1)
    slots.lease(ref)
    assert slots.release(ref)
    assert (slots.leased, free(slots)) == (0, 0)
    slots.unhold(ref.index, 0)
    assert free(slots) == 0
    slots.unhold(ref.index, 1)
    assert free(slots) == 1
    assert slots.acquire() == SlotRef(0, 2)


def test_a_hold_that_ends_before_the_release_delays_nothing() -> None:
    slots = SlotTable()
    ref = slots.acquire()
    slots.hold(ref.index, 0)
    slots.unhold(ref.index, 0)
    slots.unhold(ref.index, 0)
    assert slots.state(0) is SlotState.BUSY
    slots.release(ref)
    assert free(slots) == 1


def test_a_slot_retired_while_held_does_not_come_back_with_the_hold() -> None:
    slots = SlotTable()
    ref = slots.acquire()
    slots.hold(ref.index, 0)
    slots.release(ref)
    slots.retire(ref)
    slots.unhold(ref.index, 0)
    assert slots.state(0) is SlotState.RETIRED
    assert free(slots) == 0


def test_a_worker_that_is_gone_holds_nothing() -> None:
    slots = SlotTable()
    ref, other = slots.acquire(), slots.acquire()
    slots.hold(ref.index, 0)
    slots.hold(other.index, 0)
    slots.hold(other.index, 1)
    slots.release(ref)
    slots.release(other)
    assert free(slots) == 0
    slots.forget_worker(0)
    assert free(slots) == 1
    assert slots.acquire().index == ref.index
