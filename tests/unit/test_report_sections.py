"""The sections of a report about runs: what they say, that their charts and tables agree, and that odd records do no harm."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker._record.schema import CAUSES, STAGES, Blame, Event, LoaderRecord, Period, RunRecord, SlowestSample
from stoker._tools.render import chart_library, html, json_form, markdown, text
from stoker._tools.render.section import Chart, Part, Prose, Remark, Report, Section, SideBySide, Table
from stoker._tools.report.page import build
from stoker._tools.report.page.lane_bars import around_worst, numbered
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.page.terms import DOING, PARTS, edited, loaders, percent
from stoker._tools.report.verdict.table import plain
from stoker._tools.report.verdict.verdict import judge
from tests.unit.records import MS, SECOND, loader, run, steps, worker

WAITS_S = {
    ("fetch", 0, "io"): 0.6,
    ("fetch", 1, "head_of_line"): 0.2,
    ("start", -1, "start_up"): 0.1,
    ("record", -1, "parent"): 0.02,
}
HOSTILE = "</script><img src=x onerror=alert(1)>`|\n\x1b[31m\ud800"


def material(*records: RunRecord, **changed: Any) -> Material:
    runs = tuple(
        ReportedRun(name, record, judge(record)) for name, record in zip("abcdef", records, strict=False)
    )
    return Material(runs, **changed)


def full(**changed: Any) -> LoaderRecord:
    """A loader with something for every section."""
    usual: dict[str, Any] = {
        "steps": steps(40, workers=2),
        "slowest": [
            SlowestSample(7, 300 * MS, 1, 1, 3, 2, 90 * MS),
            SlowestSample(None, 20 * MS, -1, 1, 4, 5),
        ],
        "events": [Event(5 * MS, "bad_sample", "sample 9 raised")],
        "periods": [
            Period(place * SECOND, (place + 1) * SECOND, 10, 300 * MS, 700 * MS, {"io": 250 * MS})
            for place in range(4)
        ],
    }
    return loader(WAITS_S, **{**usual, **changed})


def made(name: str, *records: RunRecord, **changed: Any) -> Section:
    report = build.report(material(*records, **changed))
    return next(each for each in report.sections if each.id == name)


def flat(parts: tuple[Part, ...]) -> Iterator[Part]:
    for part in parts:
        if isinstance(part, SideBySide):
            for _, inner in part.columns:
                yield from flat(inner)
        else:
            yield part


def charts(section: Section) -> list[Chart]:
    return [each for each in flat(section.parts) if isinstance(each, Chart)]


def tables(section: Section) -> list[Table]:
    return [each for each in flat(section.parts) if isinstance(each, Table)]


def check(report: Report) -> None:
    """What holds for every report: ids are unique, rows fit their columns, charts are JSON and have tooltips and a table."""
    assert len({each.id for each in report.sections}) == len(report.sections)
    drawn = [each for section in report.sections for each in charts(section)]
    assert len({each.id for each in drawn}) == len(drawn)
    for chart in drawn:
        written = json.dumps(chart.spec, allow_nan=False)
        assert '"tooltip"' in written
        assert chart.summary
        assert chart.table.rows, chart.id
    for table in (
        each
        for section in report.sections
        for each in [*tables(section), *(c.table for c in charts(section))]
    ):
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert all(isinstance(cell, str) for row in table.rows for cell in row)


def test_every_section_has_something_to_say_of_a_whole_record():
    report = build.report(material(run(full())))
    check(report)
    names = [each.id for each in report.sections]
    assert names[0] == "verdict"
    assert {"breakdown", "findings", "lanes", "blame", "slowest", "machine"} <= set(names)
    assert report.severity == "high"
    assert report.headline.startswith("The training loop waits 47% of the time")
    assert report.raw["a"]["format"] == "stoker-run"


def test_two_runs_stand_side_by_side_under_one_headline():
    other = run(full(name="other"), id="5-1")
    report = build.report(material(run(full()), other))
    check(report)
    assert "47 %" in report.headline
    for name in ("verdict", "findings", "lanes", "blame", "slowest"):
        section = next(each for each in report.sections if each.id == name)
        beside = [each for each in section.parts if isinstance(each, SideBySide)]
        assert [label for label, _ in beside[0].columns] == ["a", "b"], name


def test_the_parts_of_a_step_add_up_to_it():
    chart = charts(made("breakdown", run(full())))[0]
    values = chart.spec["data"]["values"]
    assert sum(each["ms"] for each in values) == pytest.approx((0.92 + 1.0) * 1000 / 100, abs=0.05)
    assert sum(each["share"] for each in values) == pytest.approx(1, abs=0.01)
    assert [each["part"] for each in values] == sorted(
        [each["part"] for each in values], key=list(PARTS).index
    )
    assert {"training", "io", "head-of-line", "start-up", "recording"} <= {each["part"] for each in values}


def test_blame_adds_up_to_the_wait():
    chart = charts(made("blame", run(full())))[0]
    assert sum(each["ms"] for each in chart.spec["data"]["values"]) == pytest.approx(920)
    assert chart.table.caption.endswith("920 ms")


def test_the_course_shows_every_stretch_whole():
    chart = next(each for each in charts(made("breakdown", run(full()))) if each.id == "breakdown-course-0")
    values = chart.spec["data"]["values"]
    for began in range(4):
        parts = [each for each in values if each["from"] == began]
        assert parts[-1]["high"] == pytest.approx(1)
        assert {each["part"] for each in parts} == {"training", "io", "unknown"}


def test_lanes_are_of_bounded_size_and_everything_lies_within_the_stretch():
    found = numbered(loader(steps=steps(2000, workers=4)))
    stretch = around_worst(found)
    assert stretch is not None
    assert 50 < len(stretch.bars) <= 800
    assert stretch.lanes[:5] == ("training loop", "worker 0", "worker 1", "worker 2", "worker 3")
    assert all(stretch.began_ns <= each.began_ns < each.ended_ns <= stretch.ended_ns for each in stretch.bars)
    assert {each.lane for each in stretch.bars} == set(stretch.lanes)
    for lane in stretch.lanes:
        spans = sorted((each.began_ns, each.ended_ns) for each in stretch.bars if each.lane == lane)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans)), lane


def test_a_batch_that_order_held_back_is_told_from_one_that_was_early():
    table = steps(12, workers=2)
    slow = table["seq"].index(4)
    for name in ("fetched_ns", "collated_ns", "sent_ns", "got_ns", "planned_ns", "given_ns"):
        table[name][slow] += 200 * MS  # its worker took long, and the next one was ready meanwhile
    for name in ("got_ns", "planned_ns", "given_ns"):
        table[name][slow + 1] = max(table[name][slow + 1], table["given_ns"][slow] + MS)
    stretch = around_worst(numbered(loader(steps=table)))
    assert stretch is not None
    assert stretch.worst.seq == 4
    held = {each.batch.seq for each in stretch.bars if each.doing == "ready, held by order"}
    assert min(held) == 5


def test_epochs_are_counted_on_where_pools_count_anew():
    table = steps(6)
    again = {name: column + column for name, column in table.items()}
    assert [each.epoch for each in numbered(loader(steps=again))] == [0] * 6 + [1] * 6


def test_without_workers_or_readings_the_lanes_say_so():
    inline = steps(6)
    inline["worker"] = [-1] * 6
    stretch = around_worst(numbered(loader(steps=inline)))
    assert stretch is not None
    assert stretch.lanes == ("training loop", "the loop itself")
    told = [
        part.text
        for part in flat(made("lanes", run(full(executor="inline", steps=inline))).parts)
        if isinstance(part, Prose)
    ]
    assert told == ["There are no workers: the training process makes every batch while it waits for it."]
    blind = steps(6)
    for name in ("received_ns", "fetched_ns", "collated_ns", "sent_ns"):
        blind[name] = [0] * 6
    section = made("lanes", run(full(steps=blind)))
    assert "does not tell when workers" in next(
        each.text for each in flat(section.parts) if isinstance(each, Prose)
    )
    assert {each["lane"] for each in charts(section)[0].spec["data"]["values"]} == {"training loop"}


def test_parts_of_a_split_batch_each_have_their_worker():
    table = steps(4)
    for name in table:
        table[name].insert(3, table[name][2])
    table["part"][3], table["worker"][3] = 1, 1 - table["worker"][2]
    values = charts(made("lanes", run(full(steps=table))))[0].spec["data"]["values"]
    assert {each["part"] for each in values if each["batch"] == 2 and each["doing"] == "fetch"} == {
        "1 of 2",
        "2 of 2",
    }


def test_the_slowest_sample_is_named_with_what_it_costs():
    chart = charts(made("slowest", run(full())))[0]
    assert chart.table.rows[0][0] == "7"
    assert chart.table.rows[1][0] == "row 5 of batch 4"
    assert "Sample 7 took longest, 300 ms" in chart.summary
    histogram = charts(made("slowest", run(full())))[1]
    assert histogram.table.rows == (("≤ 0.032 ms", "50", "100 %"),)


def test_findings_carry_the_edit_and_the_gain():
    remarks = [each for each in flat(made("findings", run(full())).parts) if isinstance(each, Remark)]
    assert remarks[0].code == "more-workers"
    assert remarks[0].edit is not None
    assert remarks[0].edit.splitlines()[0] == "# train.py:31: num_workers=2 becomes"
    assert remarks[0].gain is not None
    first = next(each for each in flat(made("verdict", run(full())).parts) if isinstance(each, Remark))
    assert (first.title, first.edit) == ("What to do first", remarks[0].edit)


def test_what_is_to_be_typed_stands_alone_below_where_it_goes():
    assert edited("a=1", None, None) == "a=1"
    assert edited("a=1", "a=2", None) == "# in place of a=2\na=1"
    assert edited("a=1", None, "x.py:3") == "# x.py:3:\na=1"
    assert edited("", "a=2", "x.py:3") == "# x.py:3: leave out\na=2"


def test_a_diagnosis_and_a_tuning_have_their_place():
    finding = {
        "code": "STK201",
        "severity": "high",
        "title": "It hurts",
        "evidence": "seen",
        "advice": "Mend it.",
        "where": "x",
        "edit": {"before": "a=1", "after": "a=2", "site": "t.py:3"},
        "gain": {"share": 0.25, "how": "measured", "at_most": True},
    }
    mild = {"code": "STK601", "severity": "low"}
    diagnosis = {
        "subject": "t.py:ds",
        "findings": [mild, finding],
        "worst": "high",
        "skipped": [{"code": "STK1", "reason": "no"}],
    }
    tuning = {"target": "t.py:ds", "verdict": "Take 4 workers.", "why": ["because"], "changed": True, "gain": {"middle": 0.3},
              "edit": {"after": "num_workers=4"}}  # fmt: skip
    report = build.report(Material((), (tuning,), (diagnosis,)))
    check(report)
    assert report.severity == "high"
    assert report.headline == "Take 4 workers. The doctor has 2 findings about t.py:ds."
    remarks = [
        each for section in report.sections for each in flat(section.parts) if isinstance(each, Remark)
    ]
    assert [each.code for each in remarks] == ["tuning", "STK201", "STK601"]
    assert remarks[0].edit == "num_workers=4"
    assert remarks[1].advice == "Mend it. `stoker explain STK201` says more."
    assert (remarks[1].edit, remarks[1].gain) == (
        "# t.py:3: a=1 becomes\na=2",
        "at most −25% of the step's time (measured)",
    )
    assert set(report.raw) == {"tuning", "diagnosis"}
    clean = build.report(Material((), (), ({"subject": "x", "findings": [], "passed": ["STK101"]},)))
    assert "1 checks passed" in text.render(clean)


def test_colours_and_stacks_know_every_cause():
    assert {plain(each) for each in CAUSES} <= set(PARTS)
    assert {"fetch", "collate", "hand-over"} <= set(DOING)
    assert [percent(each) for each in (0.0, 0.0001, 0.042, 0.54, None)] == [
        "0 %",
        "< 0.1 %",
        "4.2 %",
        "54 %",
        "not measured",
    ]


def test_loaders_that_look_alike_are_not_taken_for_each_other():
    twins = run(full(), full(workers=[worker(0)]))
    (found,) = material(twins).runs
    assert sorted(id(each) for each, _ in loaders(found)) == sorted(map(id, twins.loaders))


_NUMBERS = st.integers(-(1 << 62), 1 << 62)
_NAMES = st.sampled_from([*STAGES, *CAUSES, "", HOSTILE])


@st.composite
def _odd_loaders(draw: st.DrawFn) -> LoaderRecord:
    """Whatever can be read: numbers of any size and sign, texts of any kind, or nothing at all."""
    base = (
        full()
        if draw(st.booleans())
        else LoaderRecord(HOSTILE, HOSTILE, draw(st.sampled_from(["inline", "process", HOSTILE])), HOSTILE)
    )
    totals = replace(
        base.totals, steps=draw(st.sampled_from([0, 1, 80])), wait_ns=draw(_NUMBERS), step_ns=draw(_NUMBERS), rows=draw(_NUMBERS),
        wait_histogram=draw(st.lists(_NUMBERS, max_size=4)), first_batch_ns=draw(st.none() | _NUMBERS),
    )  # fmt: skip
    table = (
        {name: draw(st.lists(_NUMBERS, min_size=4, max_size=4)) for name in base.steps}
        if draw(st.booleans())
        else base.steps
    )
    return replace(
        base,
        totals=totals,
        steps=table,
        blame=draw(st.lists(st.builds(Blame, _NAMES, _NUMBERS, _NAMES, _NUMBERS), max_size=3)),
        slowest=draw(
            st.lists(
                st.builds(SlowestSample, st.sampled_from([None, 3, HOSTILE, [1]]), *[_NUMBERS] * 6),
                max_size=3,
            )
        ),
        events=draw(st.lists(st.builds(Event, _NUMBERS, _NAMES, _NAMES), max_size=2)),
        periods=draw(
            st.lists(
                st.builds(Period, *[_NUMBERS] * 5, st.dictionaries(_NAMES, _NUMBERS, max_size=2)), max_size=4
            )
        ),
    )


@pytest.mark.usefixtures("_no_library")
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(_odd_loaders(), max_size=2), st.integers(0, 2))
def test_whatever_can_be_read_can_be_shown_in_every_form(odd: list[LoaderRecord], others: int) -> None:
    record = run(*odd)
    record.machine.cpus = record.machine.quota = record.machine.usable = None
    report = build.report(material(record, *[run(full(), id=str(place)) for place in range(others)]))
    check(report)
    for form in (text, json_form, html):
        form.render(report)
    assert "<img" not in re.sub(r"`[^`\n]+`|```.*?```", "", markdown.render(report), flags=re.DOTALL)
    assert max(map(len, text.render(report, 60).splitlines())) <= 140


@pytest.fixture
def _no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart_library, "script", lambda: "")
