"""A roster lists the living, and may be added to while it is gone through."""

from __future__ import annotations

from stoker._record.live_objects import LiveObjects


class Member:
    pass


def test_it_lists_those_who_are_kept() -> None:
    roster: LiveObjects[Member] = LiveObjects()
    kept, lost = Member(), Member()
    for member in (kept, lost, kept):
        roster.add(member)
    assert {*roster.all()} == {kept, lost}
    del lost, member
    assert roster.all() == [kept]


def test_it_may_grow_while_somebody_goes_through_it() -> None:
    roster: LiveObjects[Member] = LiveObjects()
    kept = [Member(), Member()]
    for member in kept:
        roster.add(member)
    for _ in roster.all():
        kept.append(Member())
        roster.add(kept[-1])
    assert roster.all() == kept
