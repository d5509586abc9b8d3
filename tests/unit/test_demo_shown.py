"""The demo's acts about memory, a kill, the doctor and the tuner, told from results as they are kept."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from stoker._record.finding import Edit, Finding, Gain
from stoker._runtime.simulation.point import Interval, Point
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand
from stoker._tools.demo.acts import doctor, killed, memory, ray, tuner
from stoker._tools.doctor.diagnosis import Diagnosis, Skip
from stoker._tools.doctor.forms.data import as_json as diagnosis_json
from stoker._tools.render import markdown, text
from stoker._tools.render.section import Chart, Code, Prose, Remark, Report, Section
from stoker._tools.tune.forms.data import as_json as tuning_json
from stoker._tools.tune.result import Tuning

_WIDEST = 71
"""A screen of 80 columns, with the names of acts in the margin."""


def _memory() -> dict[str, Any]:
    def kind(grown_mib: float) -> dict[str, Any]:
        return {
            "samples": 300_000,
            "objects_bytes": 50 << 20,
            "first_bytes": [12 << 20, 14 << 20, 12 << 20, 14 << 20],
            "readings": [
                {"share": 0.1, "grown_bytes": [int(grown_mib * (1 << 20) / 2)] * 4},
                {"share": 1.0, "grown_bytes": [int(grown_mib * (1 << 20))] * 4},
            ],
        }

    kinds = {"torch": kind(48), "stoker": kind(47.5), "stoker with share": kind(0.25)}
    return {"rows": 300_000, "workers": 4, "kinds": kinds}


def _killed() -> dict[str, Any]:
    def epoch(batches: int, **told: Any) -> dict[str, Any]:
        arrivals = [0.1 * (number + 1) for number in range(batches)]
        return {
            "arrivals_s": arrivals,
            "killed_s": 0.201,
            "ended_s": arrivals[-1] + 0.05,
            "digest": "ab",
            "samples": 16 * batches,
            "once": batches == 6,
            "failure": None,
            **told,
        }

    return {
        "batches": 6,
        "batch_size": 16,
        "kill_after": 2,
        "wanted": epoch(6, killed_s=None),
        "stoker": epoch(6),
        "torch": epoch(2, failure="RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly"),
    }


def _doctor() -> dict[str, Any]:
    findings = (
        Finding(
            "STK501", "high", "it repeats", "Seed it.", edit=Edit("seed()", site="flawed.py:3", kind="init")
        ),
        Finding(
            "STK706",
            "low",
            "starts anew",
            "Set persistent_workers=True.",
            edit=Edit("persistent_workers=True", "persistent_workers=False", kind="argument"),
            gain=Gain(0.13, "an estimate", at_most=True),
        ),
        Finding("STK102", "none", "dataset.flip: a lambda", "Define it at the top level."),
    )
    told = Diagnosis(
        "flawed.py:loader", findings, (Skip("STK502", "the dataset is not iterable-style"),), ("STK101",)
    )
    return {
        "spent_s": 4.6,
        "source": "import x\n\nclass Pictures:\n    pass\n",
        "diagnosis": diagnosis_json(told),
    }


def _point(setting: Setting, ms: float, ratio: float) -> Point:
    interval = Interval(ms * 1e6, ms * 0.9e6, ms * 1.1e6)
    return Point(
        setting,
        interval,
        Interval(ratio, ratio * 0.9, ratio * 1.1),
        stall=0.3,
        cpu_ns=30_000_000,
        memory_bytes=30 << 20,
        blocks=4,
    )


def _tuning() -> Tuning:
    now, best = Setting(engine="torch"), Setting(workers=2, prefetch=2)
    return Tuning(
        target="DataLoader",
        batch_size=32,
        baseline=now,
        recommended=best,
        verdict="Take stoker's loader with 2 workers instead of torch's with no workers: 59% less time a step.",
        why=("Batches compute for 97% of their time.",),
        warnings=("Nothing was read from storage meanwhile.",),
        gain=Interval(0.59, 0.51, 0.65),
        spent_s=6.0,
        stopped="budget",
        demand=Demand(20_000_000, 0, "step-ms"),
        points=(_point(now, 53, 1.0), _point(best, 22, 0.41), _point(Setting(), 54, 1.02)),
        edits=(Edit("num_workers=2", "num_workers=0", kind="argument"),),
    )


def _tuner(tuning: Tuning | None = None) -> dict[str, Any]:
    return {"flavour": "JPEGs are decoded", "tuning": tuning_json(tuning or _tuning())}


def _ray() -> dict[str, Any]:
    rates = [("here", 2, 396.0, 0.2), ("on Ray", 2, 390.0, 3.5), ("on Ray", 8, 1550.0, 5.0)]
    arrived = {"digest": "ab", "samples": 640, "once": True}
    return {
        "rates": [
            {"where": where, "workers": workers, "rows_s": rate, "first_s": first}
            for where, workers, rate, first in rates
        ],
        "batches": 40,
        "batch_size": 16,
        "wanted": {**arrived, "deaths": 0},
        "killed": {**arrived, "deaths": 1},
    }


RESULTS: tuple[tuple[ModuleType, dict[str, Any]], ...] = (
    (memory, _memory()),
    (killed, _killed()),
    (doctor, _doctor()),
    (tuner, _tuner()),
    (ray, _ray()),
)


@pytest.mark.parametrize(
    ("act", "result"), RESULTS, ids=[act.__name__.rpartition(".")[2] for act, _ in RESULTS]
)
def test_is_told_from_json_in_short_lines_and_in_all_forms(act: ModuleType, result: dict[str, Any]) -> None:
    kept = json.loads(json.dumps(result))
    lines = act.lines(kept)
    assert 1 <= len(lines) <= 3
    assert all(0 < len(line) < _WIDEST for line in lines), lines
    sections: list[Section] = act.sections(kept)
    assert [each.title for each in sections] == [act.TITLE]
    report = Report("demo", "", "none", tuple(sections))
    for form in (text, markdown):
        assert act.TITLE in form.render(report)
    for chart in _charts(sections):
        json.dumps(chart.spec, allow_nan=False)
        assert chart.table.rows
        assert all(len(row) == len(chart.table.columns) for row in chart.table.rows)
        assert '"tooltip"' in json.dumps(chart.spec)
    assert kept == result, "telling changes nothing"


def _charts(sections: list[Section]) -> list[Chart]:
    return [part for section in sections for part in section.parts if isinstance(part, Chart)]


def _prose(sections: list[Section]) -> str:
    return " ".join(
        part.text for section in sections for part in section.parts if isinstance(part, Prose | Code)
    )


def test_growth_is_that_of_all_workers() -> None:
    assert memory.lines(_memory()) == ["torch's 4 workers copied 192 MiB in an epoch, with share 1 MiB"]
    (chart,) = _charts(memory.sections(_memory()))
    assert chart.spec["data"]["values"][2] == {"kind": "torch", "share": 1.0, "mib": 48.0}
    assert chart.table.rows[0] == ("torch", "13 MiB", "61 MiB", "192 MiB")


def test_workers_on_ray_are_told_with_their_rates_and_the_kill() -> None:
    assert ray.lines(_ray()) == [
        "rows of 5 ms, a second: 2 workers here 396",
        "on Ray: 2 workers 390, 8 workers 1,550",
        "a worker there killed: 640 of 640 samples, once each, bit for bit",
    ]
    other = _ray()
    other["killed"] |= {"digest": "other", "once": False}
    assert ray.lines(other)[-1].endswith("not once each, NOT as without workers")


@pytest.mark.parametrize("act", [memory, killed, ray])
def test_what_cannot_be_done_here_is_said(act: ModuleType) -> None:
    result = {"skipped": "this system cannot fork a process"}
    assert act.lines(result) == ["not measured: this system cannot fork a process"]
    assert "cannot fork" in _prose(act.sections(result))


def test_a_kill_is_told_with_what_arrived() -> None:
    assert killed.lines(_killed()) == [
        "stoker: 96 of 96 samples, once each, bit for bit as without workers",
        "torch: the epoch ended after 2 of 6 batches (RuntimeError)",
    ]
    assert "exited unexpectedly" in _prose(killed.sections(_killed()))
    usual_s, longest_s = killed.gaps_s(_killed()["stoker"])
    assert usual_s == pytest.approx(0.1)
    assert longest_s == pytest.approx(0.1)


def test_a_kill_that_goes_otherwise_is_told_as_it_went() -> None:
    result = copy.deepcopy(_killed())
    result["stoker"]["digest"] = "other"
    result["stoker"]["once"] = False
    result["torch"] |= {"failure": None, "samples": 96}
    lines = killed.lines(result)
    assert "NOT as without workers" in lines[0]
    assert "not once each" in lines[0]
    assert lines[1] == "torch: 96 of 96 samples arrived"
    assert "delivers all" not in _charts(killed.sections(result))[0].summary


def test_findings_become_remarks_with_what_to_type() -> None:
    result = _doctor()
    assert doctor.lines(result) == [
        "3 findings in 5 s: STK501, STK706, STK102",
        "STK501: every worker, or every epoch, draws the same random numbers",
    ]
    remarks = [part for part in doctor.sections(result)[0].parts if isinstance(part, Remark)]
    assert [each.severity for each in remarks] == ["high", "low", "none"]
    assert remarks[0].edit == "# flawed.py:3:\nseed()"
    assert remarks[1].edit == "# in place of persistent_workers=False\npersistent_workers=True"
    assert remarks[1].gain == "at most −13% of the step's time (an estimate)"
    assert remarks[0].evidence == "It repeats."
    assert remarks[2].evidence == "dataset.flip: a lambda."
    assert "import x" not in _prose(doctor.sections(result))
    none = copy.deepcopy(result)
    none["diagnosis"]["findings"] = []
    assert len(doctor.lines(none)) == 1


def test_a_tuning_is_told_with_what_it_saves_and_how_sure_that_is() -> None:
    assert tuner.lines(_tuner()) == [
        "JPEGs are decoded, a step of 20 ms: take 2 workers × 2",
        "−59% of the step's time (−51% to −65%)",
    ]
    unsure = replace(_tuning(), separated=False, gain=Interval(0.11, -0.09, 0.37))
    assert tuner.lines(_tuner(unsure))[1] == "−11% of the step's time (+9% to −37%); others may be as good"
    same = replace(_tuning(), recommended=_tuning().baseline)
    assert tuner.lines(_tuner(same)) == ["JPEGs are decoded, a step of 20 ms: torch's: no workers, as it is"]
    alone = replace(same, points=same.points[:1])
    assert "no time for a verdict" in tuner.lines(_tuner(alone))[0]
    assert not _charts(tuner.sections(_tuner(alone)))
    failed = replace(_tuning(), failure="no sample could be made: " + "x" * 90, points=(), edits=())
    assert all(len(each) < _WIDEST for each in tuner.lines(_tuner(failed)))
    assert not _charts(tuner.sections(_tuner(failed)))
    (chart,) = _charts(tuner.sections(_tuner()))
    assert [row[1] for row in chart.table.rows] == ["to take", "as it is now", "also tried"]


def test_results_are_told_without_torch() -> None:
    """A record that was kept is shown where nobody loads data."""
    code = (
        "import sys; from stoker._tools.demo.acts import doctor, killed, memory, ray, tuner; "
        "import stoker._tools.tune.forms.words, "
        "stoker._tools.tune.forms.data; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
