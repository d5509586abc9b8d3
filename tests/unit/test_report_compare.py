"""Runs side by side: the sentence, what may be called a gain, what else differs, and how honest it is about noise."""

from __future__ import annotations

from typing import Any

import pytest

from stoker._record.schema import LoaderRecord, Period, RunRecord
from stoker._tools.render.section import Chart, Part, Prose, Table
from stoker._tools.render.theme import colour
from stoker._tools.report.page import build
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.page.sections import compare
from stoker._tools.report.page.sections.parts import comparison
from stoker._tools.report.verdict.verdict import judge
from tests.unit.records import SECOND, loader, machine, run, steps


def slow(wait_s: float, *, uneven: float = 0.0, stretches: int = 10, **changed: Any) -> LoaderRecord:
    """Waits so long beside 1 s of steps, in stretches of which every other waits more by ``uneven``."""
    wait_ns, step_ns = int(wait_s * SECOND) // max(1, stretches), SECOND // max(1, stretches)
    waits = [int(wait_ns * (1 + uneven * (-1) ** place)) for place in range(stretches)]
    periods = [
        Period(place * SECOND, (place + 1) * SECOND, 10, each, step_ns) for place, each in enumerate(waits)
    ]
    return loader({("fetch", 0, "io"): wait_s}, periods=periods, **changed)


def told(label: str, *loaders: LoaderRecord, **changed: Any) -> ReportedRun:
    record: RunRecord = run(*loaders, id=label, **changed)
    return ReportedRun(label, record, judge(record))


def made(*runs: ReportedRun) -> tuple[Part, ...]:
    found = compare.section(Material(runs))
    return () if found is None else found.parts


def headline(*runs: ReportedRun) -> str:
    return build.report(Material(runs)).headline


def of(kind: type[Any], parts: tuple[Part, ...]) -> list[Any]:
    return [each for each in parts if isinstance(each, kind)]


def test_two_runs_in_a_sentence_the_second_against_the_first() -> None:
    text = headline(told("A", slow(1.2)), told("B", slow(0.1)))
    assert text == "B waits 9.1 % of its time for data, A 55 %: 2.00× the samples/s (2.00× to 2.00×)."


def test_figures_are_held_against_each_other_with_difference_and_ratio() -> None:
    first, second = slow(1.2), slow(0.1)
    second.totals.worker_deaths = 2
    (chart,) = of(Chart, made(told("A", first), told("B", second)))
    rows = {row[0]: row[1:] for row in chart.table.rows}
    assert chart.table.columns == ("figure", "A", "B", "difference", "ratio")
    assert rows["samples per second"] == ("2,909", "5,818", "+2,909", "2.00× (2.00× to 2.00×)")
    assert rows["waiting for data"] == ("55 %", "9.1 %", "−45.5 points", "0.17×")
    assert rows["… io"] == ("12 ms", "1 ms", "−11 ms", "0.08×")
    assert rows["workers that died"] == ("0", "2", "+2", "")
    assert rows["private memory of a worker"] == ("40 MiB", "40 MiB", "none", "1.00×")
    assert "bad samples" not in rows


def test_what_varies_as_much_within_the_runs_is_no_difference() -> None:
    text = headline(told("A", slow(1.0, uneven=0.6)), told("B", slow(0.95, uneven=0.6)))
    assert "within the variation inside the runs" in text
    assert "that is no difference" in text


def test_runs_too_short_for_that_say_so() -> None:
    text = headline(told("A", slow(1.2, stretches=1)), told("B", slow(0.1, stretches=1)))
    assert "too short to say how sure that is" in text


def test_nothing_is_called_a_gain_across_machines() -> None:
    runs = told("A", slow(1.2), machine=machine(cpus=2, usable=2)), told("B", slow(0.1))
    assert "but the machines differ (CPUs 2 and 8, usable CPUs 2 and 8), so that is no gain" in headline(
        *runs
    )
    (table,) = [each for each in of(Table, made(*runs)) if each.caption.startswith("Machines")]
    assert table.rows == (("CPUs", "2", "8"), ("usable CPUs", "2", "8"))


def test_another_dataset_another_step_and_neighbours_are_told() -> None:
    first = slow(1.0, dataset="Texts", options={"batch_size": 8})
    second = slow(1.0, step_s=2.0, load={"busy_cpu_ns": 20 * SECOND})
    texts = [each.text for each in of(Prose, made(told("A", first), told("B", second)))]
    assert any("datasets differ" in each for each in texts)
    assert any("batch sizes differ" in each for each in texts)
    assert any("training step itself differs, data aside: 10 ms in A, 20 ms in B" in each for each in texts)
    assert any("Other processes" in each for each in texts)


def test_options_and_versions_that_differ_are_listed_and_only_those() -> None:
    second = slow(1.0, engine="torch", num_workers=8)
    second.options["rng"] = second.options["pin_memory"]
    second.options["rng"].why = "default"
    runs = told("A", slow(1.0)), told("B", second, machine=machine(versions={"torch": "2.6.0"}))
    tables = {each.caption: each.rows for each in of(Table, made(*runs))}
    options = {row[0]: row[1:] for row in tables["Options of the loaders that differ"]}
    assert options == {"engine": ("stoker", "torch"), "num_workers": ("2", "8")}
    assert ("torch", "2.13.0", "2.6.0") in tables["Versions that differ"]


def test_the_same_twice_says_so() -> None:
    parts = made(told("A", slow(1.0)), told("B", slow(1.0)))
    assert "are the same, as far as the records tell" in of(Prose, parts)[-1].text


def test_many_runs_have_a_row_each_and_the_best_is_named() -> None:
    runs = [told(name, slow(wait)) for name, wait in (("A", 1.0), ("B", 0.5), ("C", 0.1))]
    assert headline(*runs).startswith("Of 3 runs C makes the most samples/s, 1.82× those of A")
    (chart,) = of(Chart, made(*runs))
    assert [row[0] for row in chart.table.rows] == ["A", "B", "C"]
    many = [told(f"run {number}", slow(1.0)) for number in range(12)]
    parts = made(*many)
    assert not of(Chart, parts)
    assert len(of(Table, parts)[0].rows) == 12


def test_runs_that_handed_out_nothing_are_left_out() -> None:
    empty = loader(totals={"steps": 0, "rows": 0, "wait_ns": 0, "step_ns": 0})
    assert made(told("A", slow(1.0))) == ()
    assert made(told("A", slow(1.0)), told("B", empty)) == ()
    assert "handed out no batch" in headline(told("A", slow(1.0)), told("B", empty))


def test_without_periods_the_steps_tell_what_varies() -> None:
    first, second = (loader({("fetch", 0, "io"): 1.0}, steps=steps(100, make_ms=make)) for make in (30, 31))
    found = [comparison.side(told(name, each)) for name, each in (("A", first), ("B", second))]
    assert all(found)
    ratio = comparison.ratio(*found)  # type: ignore[arg-type]
    assert ratio is not None
    assert ratio.middle == pytest.approx(1.0)
    assert ratio.low is not None
    assert ratio.low < 1 < (ratio.high or 0)


def test_the_loaders_keep_their_colours() -> None:
    """torch's is orange and stoker's blue wherever the two meet; other runs take the series'."""
    (chart,) = of(Chart, made(told("old", slow(1.0, engine="torch")), told("new", slow(1.0))))
    assert chart.spec["layer"][0]["encoding"]["color"]["scale"] == {
        "domain": ["old", "new"],
        "range": [colour("torch"), colour("stoker")],
    }
    (chart,) = of(Chart, made(told("old", slow(1.0)), told("new", slow(1.0))))
    assert chart.spec["layer"][0]["encoding"]["color"]["scale"]["range"] == [
        colour("series-1"),
        colour("series-2"),
    ]
