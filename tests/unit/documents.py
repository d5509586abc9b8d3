"""A document of every format that stoker writes as JSON, made by its own writer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from stoker._record import journal
from stoker._record.finding import Finding
from stoker._tools.doctor.device_test.device_test import DeviceReport
from stoker._tools.doctor.explain import explain
from stoker._tools.doctor.forms import bisection, device
from stoker._tools.doctor.forms import data as doctor_data
from stoker._tools.render import json_form
from stoker._tools.render.section import Chart, Code, Prose, Remark, Report, Section, SideBySide, Table
from stoker._tools.report.profiler import ranks
from stoker._tools.report.profiler import screen as trace_screen
from stoker._tools.report.profiler import verdict as trace_verdict
from stoker._tools.report.verdict import screen
from stoker._tools.report.verdict.verdict import judge
from stoker._tools.report.what_if import what_if
from stoker._tools.top.live import document, live
from stoker._tools.top.processes import ProcessScan
from stoker._tools.tune.forms import comparison, data
from stoker._tools.tune.remote import RemoteForecast, RemotePoint
from stoker._tools.verify.answer import VerifyAnswer
from stoker._tools.verify.verification import Verification
from stoker.cli.main import main
from tests.unit import demos
from tests.unit.profiled import Profiled
from tests.unit.records import SECOND, loader, run, steps
from tests.unit.test_narrow_screens import bisected, compared, diagnosed
from tests.unit.test_top_command import seen
from tests.unit.tuning.tunings import tuning

KILLED = "RuntimeError: DataLoader worker (pid 31) is killed by signal: Killed."


def documents(folder: Path) -> list[Any]:
    """All of them, as a reader gets them: one or more of each format."""
    made = [
        *_of_the_doctor(),
        *_of_a_run(folder),
        data.as_json(tuning()),
        data.as_json(tuning(points=(), edits=(), edit=None, gain=None, failure="no batch")),
        json.loads(comparison.as_json(compared())),
        RemoteForecast("x:y", 0.1, 1000, 8, 0, 1e9, None, (RemotePoint(1, 10.0, "CPUs"),)).to_json(),
        document(live(ProcessScan(100 * SECOND, (seen(40),))), ("pid 3: gone",), at_unix_s=1.5),
        document([], (), at_unix_s=1.5),
        Verification(
            [], [VerifyAnswer("runs", "ok", "same", "They are the same.", "loader", (1,))]
        ).as_dict(),
        demos.performed({"found": demos.act(), "broken": "it failed"}),
        printed("env", "--json"),
        printed("explain", "--list", "--json"),
        printed("explain", "STK201", "--json"),
        printed("explain", "io", "more-workers", "--json"),
    ]
    return [json.loads(json.dumps(each, default=repr)) for each in made]


def printed(*words: str) -> Any:
    return json.loads(CliRunner().invoke(main, list(words)).stdout)


def _of_the_doctor() -> list[Any]:
    slow = Finding("STK901", "high", "seen", "do")
    return [
        doctor_data.as_json(diagnosed()),
        bisection.as_json(bisected()),
        device.as_json(DeviceReport("cuda:0", (("registering", "1 ms"),), (slow,))),
        explain(KILLED).as_dict(),
        explain("nothing that anybody knows").as_dict(),
    ]


def _of_a_run(folder: Path) -> list[Any]:
    record = run(loader({("fetch", 0, "io"): 2.0}, steps=steps(20)))
    journal.write(record, folder / "run.json")
    traced = Profiled()
    for _ in range(5):
        with traced.step():
            traced.next(8)
            traced.launch(2)
    table = Table("Cells", ("a", "b"), (("1", "2"),))
    chart = Chart("c", "Chart", "What is to be seen.", {}, table)
    parts = (
        Prose("a"),
        Code("b", "sh"),
        table,
        chart,
        Remark("STK201", "high", "Small", "seen", "do", None, None),
    )
    section = Section("verdict", "Verdict", (*parts, SideBySide((("left", parts),))))
    verdict = screen.as_json(judge(record, price_per_hour=2.0))
    return [
        json.loads((folder / "run.json").read_text()),
        verdict,
        screen.as_json(judge(run())),
        trace_screen.as_json(trace_verdict.judge(ranks.read([traced.write(folder / "trace.json")]))),
        what_if.answer(record, [what_if.parse("usual"), what_if.parse("workers=8")]),
        json_form.as_json(Report("A report", "All is well.", "none", (section,), {}, {"run": verdict})),
    ]
