"""Numbers of a report are held against the record, and against each other: what two places say of one thing is the same."""

from __future__ import annotations

from typing import Any

import pytest

from stoker._record.readings.memory_curve import MemoryReading, as_columns
from stoker._record.schema import Blame, Event, LoaderRecord, Period
from stoker._tools.render.section import Remark
from stoker._tools.report.page import build
from stoker._tools.report.page.lane_bars import around_worst, numbered
from stoker._tools.report.page.sections.parts.memory_curves import memory_of
from stoker._tools.report.page.terms import took
from stoker._tools.report.trace.steps import batches
from stoker._tools.report.verdict import screen
from stoker._tools.report.verdict.verdict import judge
from stoker._tools.report.what_if.recorded_work import recall
from tests.unit.records import MS, SECOND, loader, machine, run, steps, worker
from tests.unit.test_report_sections import WAITS_S, charts, check, full, made, material

MIB = 1 << 20


def straggling(slow: int = 5, *, count: int = 60, ready: int = 30) -> LoaderRecord:
    """A batch takes so long that ``ready`` others are made meanwhile; a step takes 10 ms, a batch 20 ms of one of two workers."""
    table = steps(count, make_ms=20)
    late_ns = 400 * MS
    for name in ("asked_ns", "got_ns", "planned_ns", "given_ns"):
        table[name] = [
            value + late_ns * (seq > slow or (seq == slow and name != "asked_ns"))
            for seq, value in enumerate(table[name])
        ]
    table["sent_ns"][slow] += late_ns
    for seq in range(slow + 1, slow + 1 + ready):
        table["sent_ns"][seq] = table["asked_ns"][slow] + (seq - slow) * MS
        table["received_ns"][seq] = table["fetched_ns"][seq] = table["collated_ns"][seq] = (
            table["sent_ns"][seq] - MS
        )
    return loader(WAITS_S, steps=table, totals={"steps": count, "window": 2 + ready})


def test_batches_beyond_the_lanes_were_held_all_the_same() -> None:
    record = straggling()
    stretch = around_worst(numbered(record))
    assert stretch is not None
    assert stretch.worst.seq == 5
    assert stretch.hidden > 0
    chart = charts(made("lanes", run(record)))[0]
    held = {row[1]: row[4] for row in chart.table.rows}
    assert held["20"] == took(record.steps["sent_ns"][5] - record.steps["sent_ns"][20])
    sent = record.steps["sent_ns"]
    late = [seq for seq in range(1, 60) if sent[seq] < max(sent[:seq])]
    assert f" {len(late)} were made and had to wait for an earlier one" in chart.summary
    assert len(chart.table.rows) == 40
    assert chart.table.caption.startswith("Batch by batch, the first 40 of ")


def test_a_batch_counts_as_ready_in_the_table_of_waits_as_in_the_totals() -> None:
    """One that was made and not seen yet is found by a look that takes a moment: got is not asked then."""
    table = steps(10, make_ms=5)
    table["ready"] = [0] * 10
    table["got_ns"] = [value + MS // 2 for value in table["got_ns"]]
    record = full(steps=table)
    expected = sum(sent <= asked for sent, asked in zip(table["sent_ns"], table["asked_ns"], strict=True))
    assert expected > 5
    assert sum(each.ready for each in batches(record)) == expected
    chart = next(
        each for each in charts(made("breakdown", run(record))) if each.id.startswith("breakdown-waits")
    )
    assert f"{expected} of 10 were ready" in chart.summary


def test_recording_is_told_apart_in_every_place() -> None:
    waits_s = {**WAITS_S, ("record", -1, "parent"): 0.4}
    record = run(loader(waits_s))
    verdict = judge(record)
    stall = verdict.loaders[0].causes.stall
    assert stall == pytest.approx(0.9 / 2.3)
    assert "39%" in verdict.headline
    assert "parent" not in verdict.loaders[0].why[0]
    summary = charts(made("breakdown", record))[0].summary
    assert "of which 39 % is waiting for data, most of it io; 17 % is making this record" in summary
    heads = next(line for line in screen.render(verdict).splitlines() if "where the wait went" in line)
    assert "recording" in heads
    assert "parent" not in heads


def test_a_wait_that_deepened_the_window_is_part_of_the_pace() -> None:
    record = straggling()
    found = recall(record, machine())
    assert found is not None
    shallow = straggling()
    shallow.totals.window = 4
    as_before = recall(shallow, machine())
    assert as_before is not None
    assert found.interval_ns == as_before.interval_ns


def test_the_pace_of_auto_is_that_of_the_workers_there_were_last() -> None:
    table = steps(100, make_ms=30)
    last_ns = table["given_ns"][49]
    for name, column in table.items():
        if name in ("asked_ns", "got_ns", "planned_ns", "given_ns"):
            table[name] = column[:50] + [last_ns + (seq - 49) * 10 * MS for seq in range(50, 100)]
    changed = loader(WAITS_S, steps=table, events=[Event(last_ns, "tuning", "2 -> 5 workers")])
    found = recall(changed, machine())
    assert found is not None
    assert found.stall == 0
    unchanged = recall(loader(WAITS_S, steps=table), machine())
    assert unchanged is not None
    assert unchanged.stall > 0.1


def test_workers_that_came_later_occupied_nothing_before() -> None:
    found = [
        MemoryReading(at * SECOND, worker, 100 + worker, 30 * MIB, 20 * MIB)
        for worker, at in ((0, 1), (0, 9), (1, 8))
    ]
    table = steps(4)
    table["worker"], table["received_ns"] = [0, 0, 1, 1], [SECOND, 2 * SECOND, 5 * SECOND, 6 * SECOND]
    table["sent_ns"] = [each + MS for each in table["received_ns"]]
    events = [Event(4 * SECOND, "tuning", "1 -> 2 workers")]
    auto = memory_of(loader(WAITS_S, memory=as_columns(found), steps=table, events=events))
    assert [each.private_bytes for each in auto.together] == [20 * MIB, 40 * MIB, 40 * MIB]
    steady = memory_of(loader(WAITS_S, memory=as_columns(found), steps=table))
    assert [each.private_bytes for each in steady.together] == [40 * MIB, 40 * MIB, 40 * MIB]
    damaged: dict[str, Any] = {**table, "worker": [0, "x", 1, 1]}
    assert memory_of(loader(WAITS_S, memory=as_columns(found), steps=damaged, events=events)).together


def test_the_point_of_a_run_says_what_it_leaves_out() -> None:
    record = run(full(totals={"steps": 40, "rows": 40 * 64, "wait_ns": 4 * SECOND}))
    assert "all in all it is 512 samples a second" in _prose(made("curve", record))
    assert "all in all" not in _prose(made("curve", run(full(totals={"steps": 40, "rows": 40 * 6400}))))


def test_a_reason_is_cut_between_words_and_that_is_shown() -> None:
    reason = "the window deepened: " + "the consumer waited while a worker had nothing to do, " * 5
    text = " ".join(screen.render(judge(run(loader(WAITS_S, events=[Event(0, "window", reason)])))).split())
    assert "last: the window deepened: the consumer waited" in text
    assert text.split("last: ")[1].split(" …")[0] in reason


def test_a_run_that_was_killed_at_its_first_batch_has_no_step_of_no_time() -> None:
    first = loader({("fetch", 0, "io"): 0.3}, step_s=0, totals={"steps": 1, "rows": 64})
    text = screen.render(judge(run(first, ended=False, exit="SIGKILL")))
    assert " 0 ms" not in text
    assert "SIGKILL" in text


def _prose(section: Any) -> str:
    return " ".join(getattr(each, "text", "") for each in section.parts)


def test_growth_is_told_where_each_worker_was_read_once() -> None:
    found = [MemoryReading(SECOND, place, 100 + place, 400 * MIB, 350 * MIB) for place in range(2)]
    grown = [worker(place, private_bytes=350 * MIB, private_growth_bytes=300 * MIB) for place in range(2)]
    record = run(loader(WAITS_S, memory=as_columns(found), workers=grown))
    section = made("memory", record)
    assert "Most grew worker 0: by 300 MiB of its own since its first batches" in charts(section)[0].summary
    assert "+" not in charts(section)[0].table.rows[-1][-1]
    remark = next(each for each in section.parts if isinstance(each, Remark))
    assert remark.code == "STK601"
    assert (
        "2 workers of Images took 600 MiB more since their first batches; worker 0 alone 300 MiB"
        in remark.evidence
    )
    quiet = loader(WAITS_S, memory=as_columns(found), workers=[worker(0, private_growth_bytes=0)])
    assert "None of them took as much as 1 MiB more" in charts(made("memory", run(quiet)))[0].summary
    unknown = loader(WAITS_S, memory=as_columns(found), workers=[worker(0, private_growth_bytes=None)])
    assert "growth is not known" in charts(made("memory", run(unknown)))[0].summary


def test_no_gain_is_larger_than_the_wait_it_is_made_of() -> None:
    waits_s = {("fetch", 0, "io"): 1.0, ("record", -1, "parent"): 0.5}
    verdict = judge(run(loader(waits_s, executor="inline", num_workers=0, workers=[]))).loaders[0]
    gains = [each.gain.share for each in verdict.findings if each.gain is not None and each.gain.share]
    assert gains
    assert verdict.causes.stall == pytest.approx(0.4)
    assert max(gains) <= 0.4


def test_runs_side_by_side_tell_recording_apart_and_parts_add_up() -> None:
    waits_s = {**WAITS_S, ("record", -1, "parent"): 0.4, ("open", -1, "parent"): 0.2}
    table = charts(made("compare", run(loader(waits_s)), run(loader(waits_s), id="5-1")))[0].table
    rows = {row[0]: row[1] for row in table.rows}
    assert rows["… recording"] == "4 ms"
    assert rows["… parent"] == "2 ms"
    assert rows["waiting, per batch"] == "15 ms"


def test_what_rounding_leaves_over_is_no_part_of_a_step() -> None:
    record = loader(WAITS_S)
    record.totals.wait_ns += 1
    record.blame.append(Blame("other", -1, "unknown", 1))
    table = charts(made("breakdown", run(record)))[0].table
    assert "unknown" not in [row[0] for row in table.rows]


def test_the_worst_stretch_of_a_run_is_not_a_batch_by_itself() -> None:
    periods = [Period(place * SECOND, (place + 1) * SECOND, 10, 300 * MS, 700 * MS, {}) for place in range(4)]
    periods.append(Period(4 * SECOND, 4 * SECOND + MS, 1, MS, 0, {}))
    course = next(
        each for each in charts(made("breakdown", run(full(periods=periods)))) if "course" in each.id
    )
    assert "30 % of that time" in course.summary


@pytest.mark.parametrize("waits_s", [{("fetch", -1, "unknown"): 4.9}, {("start", -1, "start_up"): 4.9}])
def test_a_loader_that_never_delivered_is_said_to_be_one(waits_s: dict[tuple[str, int, str], float]) -> None:
    totals = {"steps": 0, "batches": 0, "rows": 0, "ready": 0, "first_batch_ns": None}
    record = run(loader(waits_s, step_s=0, totals=totals), exit="SIGINT")
    verdict = judge(record)
    assert (
        verdict.headline
        == "The training loop waited 4.9 s for loader of Images (train.py:31), and no batch came."
    )
    assert [each.code for each in verdict.loaders[0].findings] == ["no-batch"]
    text = screen.render(verdict)
    assert "/proc" not in text
    assert "0 batches" not in text
    check(build.report(material(record)))


@pytest.mark.parametrize(
    ("changed", "middle", "severity"),
    [(True, 0.98, "high"), (True, 0.1, "moderate"), (True, None, "low"), (False, 0.98, "none")],
)
def test_a_tuning_that_says_what_to_change_is_not_headed_nothing_to_change(
    changed: bool, middle: float | None, severity: str
) -> None:
    tuning = {"verdict": "Take 8 workers.", "changed": changed, "gain": {"middle": middle}}
    report = build.report(material(tunings=(tuning,)))
    assert report.severity == severity
