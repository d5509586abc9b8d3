"""Who is to blame for a wait: worked examples by hand, and the rule that nothing of it is lost or invented."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker._record.attribution import FIRST_TIMES, QUICK_WAKE_NS, Attribution
from stoker._record.schema import STEP_COLUMNS

US = 1000
MS = 1000 * US


def row(**values: int) -> list[int]:
    """One step; what is not said: the batch had been there, and nothing took any time."""
    usual = dict.fromkeys(STEP_COLUMNS, 0) | {"epoch": 1, "rows": 16, "slow_row": -1} | values
    usual["got_ns"] = values.get("got_ns", usual["asked_ns"])
    usual["planned_ns"] = values.get("planned_ns", usual["got_ns"])
    usual["given_ns"] = values.get("given_ns", usual["planned_ns"])
    return [usual[name] for name in STEP_COLUMNS]


def made(worker: int, received: int, fetched: int, collated: int, sent: int, **values: int) -> dict[str, int]:
    """A ticket's moments, in ms, with a reading that is all compute unless said otherwise."""
    took = (sent - received) * MS
    moments = {"received_ns": received, "fetched_ns": fetched, "collated_ns": collated, "sent_ns": sent}
    reading = {"cpu_ns": took, "metered_ns": took}
    return {"worker": worker, **{name: at * MS for name, at in moments.items()}, **reading, **values}


def fold(*rows: list[int], **attribution: Any) -> dict[tuple[str, int, str], float]:
    sums, _ = Attribution(**attribution).fold(np.array(rows, np.int64))
    return {key: ns / MS for key, ns in sums.items() if ns}


def known(*workers: int) -> Attribution:
    """A attribution that has met these workers, long ago."""
    attribution = Attribution(workers=max(2, len(workers)))
    attribution.fold(
        np.array([row(asked_ns=5 * MS, **made(worker, 1, 2, 3, 4)) for worker in workers], np.int64)
    )
    return attribution


def seen(attribution: Attribution, *rows: list[int]) -> dict[tuple[str, int, str], float]:
    sums, _ = attribution.fold(np.array(rows, np.int64))
    return {key: ns / MS for key, ns in sums.items() if ns}


def test_time_in_a_workers_hands_goes_to_the_stages_it_was_in() -> None:
    ticket = made(0, 100, 160, 180, 190, cpu_ns=45 * MS, runq_ns=18 * MS)
    sums = seen(known(0), row(asked_ns=110 * MS, got_ns=191 * MS, **ticket))
    assert sums.pop(("wake", -1, "parent")) == pytest.approx(1)
    parts = {"fetch": 50, "collate": 20, "hand_over": 10}
    shares = {"compute": 0.5, "starved": 0.2, "io": 0.3}
    assert sums == {
        (stage, 0, cause): pytest.approx(ms * share)
        for stage, ms in parts.items()
        for cause, share in shares.items()
    }


def test_a_queued_ticket_waits_for_what_its_worker_does_before() -> None:
    sums = seen(
        known(0, 1),
        row(asked_ns=200 * MS, seq=1, **made(1, 100, 180, 190, 200, cpu_ns=0)),
        row(asked_ns=150 * MS, got_ns=210 * MS, seq=2, dispatched_ns=100 * MS, **made(1, 200, 205, 208, 210)),
    )
    assert sums == {
        ("fetch", 1, "io"): pytest.approx(30),
        ("collate", 1, "io"): pytest.approx(10),
        ("hand_over", 1, "io"): pytest.approx(10),
        ("fetch", 1, "compute"): pytest.approx(5),
        ("collate", 1, "compute"): pytest.approx(3),
        ("hand_over", 1, "compute"): pytest.approx(2),
    }


def test_before_a_worker_had_any_task_it_was_starting() -> None:
    ticket = made(0, 100, 110, 110, 110)
    sums = fold(row(asked_ns=10 * MS, got_ns=110 * MS, dispatched_ns=20 * MS, **ticket), workers=2)
    assert sums == {
        ("plan", -1, "parent"): pytest.approx(10),
        ("start", 0, "start_up"): pytest.approx(80),
        ("fetch", 0, "compute"): pytest.approx(10),
    }


def test_a_first_task_far_beyond_the_usual_is_start_up_too() -> None:
    rows = [row(asked_ns=0, got_ns=400 * MS, **made(0, 0 + 1, 400, 400, 400))]
    rows += [
        row(asked_ns=(410 + n) * MS, seq=n, **made(0, 400 + n, 401 + n, 401 + n, 401 + n))
        for n in range(1, 9)
    ]
    sums = fold(*rows, workers=1)
    assert sums["start", 0, "start_up"] == pytest.approx(400 - FIRST_TIMES)
    assert sums["fetch", 0, "compute"] == pytest.approx(FIRST_TIMES)


def test_a_free_worker_that_does_not_wake_up_found_no_cpu() -> None:
    sums = seen(
        known(0),
        row(asked_ns=100 * MS, got_ns=150 * MS, dispatched_ns=90 * MS, **made(0, 150, 150, 150, 150)),
    )
    assert sums["queue", 0, "parent"] == pytest.approx(QUICK_WAKE_NS / MS)
    assert sums["queue", 0, "starved"] == pytest.approx(50 - QUICK_WAKE_NS / MS)


def test_order_is_to_blame_while_a_later_batch_is_there() -> None:
    slow = row(asked_ns=100 * MS, got_ns=500 * MS, seq=1, **made(0, 100, 500, 500, 500, cpu_ns=0))
    later = row(asked_ns=501 * MS, seq=2, **made(1, 100, 140, 140, 140, cpu_ns=0))
    assert seen(known(0, 1), slow, later) == {
        ("fetch", 0, "io"): pytest.approx(40),
        ("fetch", 0, "head_of_line"): pytest.approx(360),
    }


def test_order_costs_nothing_when_workers_have_no_time_to_spare() -> None:
    slow = row(asked_ns=100 * MS, got_ns=500 * MS, seq=1, **made(0, 100, 500, 500, 500, cpu_ns=0))
    busy = [
        row(
            asked_ns=(501 + n) * MS,
            seq=2 + n,
            **made(1, 100 + 40 * n, 138 + 40 * n, 138 + 40 * n, 138 + 40 * n),
        )
        for n in range(10)
    ]
    sums = seen(known(0, 1), slow, *busy)
    assert sums == {("fetch", 0, "io"): pytest.approx(400)}


def test_order_costs_nothing_while_nobody_is_idle() -> None:
    slow = row(asked_ns=100 * MS, got_ns=500 * MS, seq=1, **made(0, 100, 500, 500, 500, cpu_ns=0))
    later = row(asked_ns=501 * MS, seq=2, **made(1, 100, 140, 140, 140))
    after = row(asked_ns=502 * MS, seq=3, **made(1, 250, 450, 450, 450))
    attribution = known(0, 1)
    attribution.resize(2)
    assert seen(attribution, slow, later, after) == {("fetch", 0, "io"): pytest.approx(400)}
    attribution = known(0, 1)
    attribution.resize(3)  # one of them had nothing to do
    assert seen(attribution, slow, later, after)["fetch", 0, "head_of_line"] == pytest.approx(360)


def test_of_a_split_batch_the_part_that_came_last_is_to_blame() -> None:
    step = {"asked_ns": 100 * MS, "got_ns": 180 * MS, "seq": 7}
    sums = seen(
        known(0, 1),
        row(**step, part=0, **made(0, 100, 120, 120, 120)),
        row(**step, part=1, **made(1, 100, 180, 180, 180)),
    )
    assert sums == {("fetch", 1, "compute"): pytest.approx(80)}


def test_what_was_not_measured_is_unknown() -> None:
    bare = made(0, 100, 0, 0, 180, cpu_ns=0, metered_ns=0)
    assert fold(row(asked_ns=100 * MS, got_ns=180 * MS, **bare), inline=True) == {
        ("fetch", 0, "unknown"): pytest.approx(80)
    }
    nothing = row(asked_ns=100 * MS, got_ns=180 * MS)
    assert fold(nothing) == {("queue", -1, "unknown"): pytest.approx(80)}


def test_a_quick_task_has_the_reading_that_covers_it() -> None:
    unread = made(0, 100, 120, 120, 120, cpu_ns=0, metered_ns=0)
    read = made(0, 120, 140, 140, 140, cpu_ns=10 * MS, runq_ns=30 * MS, metered_ns=40 * MS)
    sums = seen(
        known(0),
        row(asked_ns=100 * MS, got_ns=120 * MS, seq=1, **unread),
        row(asked_ns=140 * MS, seq=2, **read),
    )
    assert sums == {("fetch", 0, "compute"): pytest.approx(5), ("fetch", 0, "starved"): pytest.approx(15)}


def test_without_workers_all_of_it_is_the_parents_own() -> None:
    ticket = made(-1, 101, 150, 160, 160)
    sums = fold(
        row(asked_ns=100 * MS, got_ns=161 * MS, planned_ns=162 * MS, given_ns=165 * MS, **ticket), inline=True
    )
    assert sums == {
        ("fetch", -1, "compute"): pytest.approx(49),
        ("collate", -1, "compute"): pytest.approx(10),
        ("plan", -1, "parent"): pytest.approx(2),
        ("wake", -1, "parent"): pytest.approx(1),
        ("open", -1, "parent"): pytest.approx(3),
    }


def test_the_task_waited_for_knows_its_part() -> None:
    attribution = known(0)
    rows = np.array([row(asked_ns=110 * MS, got_ns=190 * MS, **made(0, 100, 160, 180, 190))], np.int64)
    _, blamed = attribution.fold(rows)
    assert blamed.tolist() == [pytest.approx(80 * MS)]


moments = st.integers(0, 2000).map(lambda us: us * US)
spans = st.integers(0, 400).map(lambda us: us * US)


@st.composite
def tables(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Steps that follow each other in time; what is told of their tickets may be any nonsense."""
    now, rows = draw(moments) + US, []
    for seq in range(draw(st.integers(1, 12))):
        asked = now + draw(spans)
        got = asked + draw(spans)
        planned = got + draw(spans)
        now = planned + draw(spans)
        for part in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
            told = {
                name: draw(moments)
                for name in ("dispatched_ns", "received_ns", "fetched_ns", "collated_ns", "sent_ns")
            }
            if draw(st.booleans()):
                told = dict(zip(told, sorted(told.values()), strict=True))
            reading = {name: draw(spans) for name in ("cpu_ns", "runq_ns", "metered_ns")}
            step = {
                "asked_ns": asked,
                "got_ns": got,
                "planned_ns": planned,
                "given_ns": now,
                "seq": seq,
                "part": part,
            }
            rows.append(row(**step, worker=draw(st.integers(-1, 3)), **told, **reading))
    return np.array(rows, np.int64)


@given(tables(), st.booleans(), st.integers(1, 4), st.integers(0, 12))
def test_blame_adds_up_to_the_wait_whatever_the_table_says(
    table: np.ndarray[Any, Any], inline: bool, workers: int, cut: int
) -> None:
    at = {name: place for place, name in enumerate(STEP_COLUMNS)}
    firsts = table[table[:, at["part"]] == 0]
    whole = int((firsts[:, at["given_ns"]] - firsts[:, at["asked_ns"]]).sum())
    attribution = Attribution(workers=workers, inline=inline)
    border = firsts[min(cut, len(firsts) - 1), at["seq"]]  # parts of one ticket come together
    found = [
        attribution.fold(part)[0]
        for part in (table[table[:, at["seq"]] < border], table[table[:, at["seq"]] >= border])
    ]
    assert sum(sum(sums.values()) for sums in found) == pytest.approx(whole, abs=1)
    assert all(ns >= 0 for sums in found for ns in sums.values())
