"""The records that tests are made of are records."""

from __future__ import annotations

from stoker._record import journal
from stoker._record.schema import MOMENTS, STEP_COLUMNS, Event, Period, RunRecord
from tests.unit.records import SECOND, loader, run, steps


def test_a_made_record_adds_up_and_comes_back_from_its_dict():
    made = run(loader({("fetch", 0, "io"): 0.6, ("fetch", 1, "compute"): 0.4}, steps=steps(50)))
    assert RunRecord.from_dict(made.as_dict()) == made
    totals = made.loaders[0].totals
    assert totals.wait_ns == SECOND == sum(each.ns for each in made.loaders[0].blame)


def test_made_steps_are_a_possible_story():
    table = steps(50, workers=3)
    assert set(table) == set(STEP_COLUMNS)
    for seq in range(50):
        moments = [
            table[name][seq]
            for name in ("dispatched_ns", "received_ns", "fetched_ns", "collated_ns", "sent_ns", "got_ns")
        ]
        assert moments == sorted(moments)
        assert (
            table["asked_ns"][seq]
            <= table["got_ns"][seq]
            <= table["planned_ns"][seq]
            <= table["given_ns"][seq]
        )


def test_loaders_that_began_later_are_merged_at_their_own_time():
    def later(by_clock_s, by_calendar_s):
        happened = [Event(5, "restart", "")]
        late = loader(steps=steps(3), events=happened, periods=[Period(0, 9, 1, 1, 1)])
        first = run(loader(steps=steps(3)))
        other = run(
            late,
            began_ns=first.run.began_ns + by_clock_s * SECOND,
            began_unix_ns=first.run.began_unix_ns + by_calendar_s * SECOND,
        )
        return journal.merged([other, first]).loaders[1]

    usual = steps(3)
    for by_clock_s, by_calendar_s, late_s in ((4, 4, 4), (-100, 4, 4)):
        found = later(by_clock_s, by_calendar_s)
        for name in STEP_COLUMNS:
            expected = usual[name]
            if name in MOMENTS:
                measured = name in MOMENTS[:4]
                expected = [each + late_s * SECOND if each or measured else 0 for each in expected]
            assert found.steps[name] == expected, name
        assert found.events[0].at_ns == late_s * SECOND + 5
        assert (found.periods[0].began_ns, found.periods[0].ended_ns) == (
            late_s * SECOND,
            late_s * SECOND + 9,
        )
