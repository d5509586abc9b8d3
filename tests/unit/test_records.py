"""The records that tests are made of are records."""

from __future__ import annotations

from stoker._metrics.record import STEP_COLUMNS, RunRecord
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
