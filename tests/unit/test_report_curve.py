"""The scaling curve of a report: replayed from a run, measured by a tuning, with its ceiling, its knee and what was chosen."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from stoker._record.schema import STEP_COLUMNS, LoaderRecord, RunRecord
from stoker._tools.render.section import Chart, Part, Prose
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.page.sections import curve
from stoker._tools.report.page.sections.scaling import of_run, of_tuning
from stoker._tools.report.verdict.verdict import judge
from tests.unit.records import MS, loader, machine, run, steps


def waiting(workers: int, *, count: int = 200, make_ms: int = 30, **changed: Any) -> LoaderRecord:
    """A loader whose workers sleep for ``make_ms`` a batch; a step takes 10 ms."""
    table = steps(count, workers=workers, make_ms=make_ms)
    wait_ns = sum(table["given_ns"]) - sum(table["asked_ns"])
    waits = {("fetch", 0, "io"): wait_ns / 1e9}
    totals = {"steps": count, "batches": count, "rows": 64 * count}
    return loader(waits, step_s=count * 0.01, num_workers=workers, steps=table, totals=totals, **changed)


def told(record: RunRecord, label: str = "run") -> ReportedRun:
    return ReportedRun(label, record, judge(record))


def made(*runs: ReportedRun, tunings: tuple[dict[str, Any], ...] = ()) -> tuple[Part, ...]:
    found = curve.section(Material(runs, tunings))
    return () if found is None else found.parts


SETTING: dict[str, Any] = {"workers": 2, "executor": "process", "threads": 1, "engine": "stoker"}


def tuning() -> dict[str, Any]:
    """Two workers were there, four are recommended; two with threads are as good. 16 rows take 26 ms, a step 8."""

    def point(setting: dict[str, Any], ms: float, **more: Any) -> dict[str, Any]:
        interval = {"middle": ms * MS, "low": 0.9 * ms * MS, "high": 1.1 * ms * MS}
        usual = {"stall": 0.1, "blocks": 3, "failure": "", "predicted_ns": 1.02 * ms * MS}
        return {"setting": {**SETTING, **setting}, "interval_ns": interval, **usual, **more}

    return {
        "format": "stoker-tuning", "version": 1, "target": "data.py:make",
        "work": {"rows": 16, "batch_ns": [26 * MS] * 40, "cpu_ns": [MS] * 40, "new": 7},
        "host": {"cpus": 2.0, "machine_cpus": 2}, "demand": {"step_ns": 8 * MS},
        "settings": {"baseline": SETTING, "recommended": {**SETTING, "workers": 4}},
        "points": [
            point({}, 13.5), point({"workers": 4}, 8.3), point({"threads": 16}, 8.4),
            point({"workers": 9}, 1.0, failure="it died"), point({"workers": 8}, 1.0, blocks=0),
        ],
    }  # fmt: skip


def test_a_run_is_one_measured_point_on_a_line_that_is_replayed() -> None:
    chart, note = made(told(run(waiting(2))))
    assert isinstance(chart, Chart)
    assert isinstance(note, Prose)
    kinds = [each["kind"] for each in chart.spec["layer"][-1]["data"]["values"]]
    assert kinds.count("as it was") == 1
    assert kinds.count("recommended") == 1
    assert "not measured" in note.text
    assert "With 2 workers it is 4,2" in chart.summary
    assert "the training step alone allows 6,3" in chart.summary
    assert [row[4] for row in chart.table.rows if row[0] == "2"] == ["as it was"]


def test_the_knee_is_where_the_step_binds() -> None:
    """30 ms over three workers is a batch every 10 ms, which is the step."""
    found = of_run(told(run(waiting(2))))
    assert found is not None
    assert found.knee == 3
    assert found.wanted == 4
    assert found.ceiling is not None
    assert found.ceiling.per_s == pytest.approx(64 / 0.01, rel=0.01)
    assert found.error == pytest.approx(0.0, abs=0.05)
    by_count = {each.workers: each.per_s for each in found.predicted}
    assert by_count[1] == pytest.approx(64 / 0.03, rel=0.02)
    assert by_count[2] == pytest.approx(found.measured[0].per_s, rel=0.05)
    assert by_count[8] == pytest.approx(found.ceiling.per_s, rel=0.02)


def test_a_run_without_workers_has_a_curve_too() -> None:
    inline = waiting(1, executor="inline")
    inline.options["num_workers"].value = 0
    found = of_run(told(run(inline)))
    assert found is not None
    assert found.now == 0
    assert found.predicted[0].workers == 0
    assert found.predicted[-1].per_s > 2 * found.predicted[0].per_s


def test_hundreds_of_workers_stay_readable() -> None:
    big = waiting(192, count=900, make_ms=3000)
    chart, _ = made(told(run(big, machine=machine(cpus=192, affinity=192, usable=192))))
    assert isinstance(chart, Chart)
    *_, points = chart.spec["layer"]
    assert points["encoding"]["x"]["scale"]["type"] == "symlog"
    assert len(points["encoding"]["x"]["axis"]["values"]) <= 12
    assert 10 < len(chart.table.rows) < 30


def test_thousands_of_batches_are_sampled() -> None:
    found = of_run(told(run(waiting(2, count=5000))))
    assert found is not None
    assert found.replayed == 512


def test_a_step_that_takes_no_time_has_its_ceiling_in_the_table_only() -> None:
    idle = waiting(2)
    idle.totals.step_ns = 1000 * idle.totals.steps
    chart, _ = made(told(run(idle)))
    assert isinstance(chart, Chart)
    assert not any("ceiling" in str(layer.get("data")) for layer in chart.spec["layer"])


def test_several_runs_share_a_chart_with_a_colour_each() -> None:
    chart, note = made(told(run(waiting(2)), "a"), told(run(waiting(4), id="2"), "b"))
    assert isinstance(chart, Chart)
    assert isinstance(note, Prose)
    assert chart.spec["layer"][-1]["encoding"]["color"]["scale"]["domain"] == ["a", "b"]
    assert {row[0] for row in chart.table.rows} == {"a", "b"}
    assert chart.table.columns[0] == "run"


def test_a_tuning_is_what_it_measured_with_its_intervals() -> None:
    chart, note = made(tunings=(tuning(),))
    assert isinstance(chart, Chart)
    assert isinstance(note, Prose)
    assert chart.id == "curve-tuning-0"
    found = of_tuning(tuning(), "it")
    assert found is not None
    assert [each.kind for each in found.measured] == ["as it was", "recommended", "measured"]
    assert (found.now, found.wanted, found.knee) == (2, 4, 4)
    assert found.error == pytest.approx(0.02)
    assert "With 2 workers it is 1,185 samples a second" in chart.summary
    (two,) = (row for row in chart.table.rows if row[0] == "2")
    assert "threads_per_worker=16" in two[3]
    assert "(1,077 to 1,317)" in two[3]
    spread = [each for each in chart.spec["layer"] if "y2" in each["encoding"]]
    assert len(spread[0]["data"]["values"]) == 3


@pytest.mark.parametrize("name", ["work", "host", "demand", "settings", "points"])
def test_a_tuning_that_measured_nothing_or_is_damaged_has_none(name: str) -> None:
    for value in (None, {}, [], [7], "<b>", {"rows": "many"}, {"cpus": float("nan")}):
        damaged = copy.deepcopy(tuning())
        damaged[name] = value
        assert made(tunings=(damaged,)) == ()


def test_numbers_that_are_none_are_not_drawn() -> None:
    damaged: Any = tuning()
    damaged["points"][0]["stall"] = float("nan")
    assert made(tunings=(damaged,)) == ()


def test_a_record_without_batches_or_with_a_damaged_table_has_none() -> None:
    assert made(told(run(loader(totals={"steps": 0, "rows": 0})))) == ()
    broken = waiting(2)
    broken.steps = {name: [*column[:-1], "x"] for name, column in broken.steps.items()}  # type: ignore[list-item]
    assert set(broken.steps) == set(STEP_COLUMNS)
    assert made(told(run(broken))) == ()
