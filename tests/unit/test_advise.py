"""What ``stoker advise`` ranks, forecasts and prints; the runs themselves are in tests/e2e/test_advise.py."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker._host.secrets import HIDDEN
from stoker._record.finding import Edit, Finding, Gain
from stoker._record.schema import STEP_COLUMNS, Event, LoaderRecord
from stoker._tools.advise import page, screen
from stoker._tools.advise.advice import Advice, Command
from stoker._tools.advise.bounded_run import forget_deaths
from stoker._tools.advise.forecast import ForecastRow, forecast
from stoker._tools.advise.hang import find_hang, without_hang
from stoker._tools.advise.plain import as_json
from stoker._tools.advise.ranking import MOST_EDITS, ranked
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.facts.randomness import RandomnessFacts
from stoker._tools.render import markdown, terminal
from stoker._tools.render.terminal import Line
from stoker._tools.report.verdict.verdict import judge
from tests.unit.records import SECOND, loader, run, worker

IO = {("fetch", 0, "io"): 0.9, ("start", -1, "start_up"): 0.1}


def _diagnosis(*findings: Finding) -> Diagnosis:
    return Diagnosis(subject="train.py:make", findings=findings, passed=(), skipped=(), facts={})


def _finding(code: str, severity: str, after: str, share: float | None = None) -> Finding:
    gain = None if share is None else Gain(share, "measured")
    return Finding(code, severity, "seen", "do it", Edit(after, None, "train.py:31"), gain)


def test_what_breaks_the_run_comes_first_then_gains_then_the_unknown():
    found = ranked(
        judge(run(loader(IO))),
        [
            _diagnosis(
                _finding("STK1", "moderate", "pin_memory=False"),
                _finding("STK2", "high", "timeout=60"),
                _finding("STK3", "moderate", "drop_last=True", 0.9),
                _finding("STK4", "low", "in_order=False", 0.9),
            )
        ],
    )
    assert [each.code for each in found][:3] == ["STK2", "STK3", "more-workers"]
    assert "STK4" not in [each.code for each in found]
    assert len(found) <= MOST_EDITS


def test_two_edits_of_one_argument_are_one():
    rival = _diagnosis(_finding("STK9", "moderate", "num_workers=1", 0.01))
    found = ranked(judge(run(loader(IO))), [rival])
    assert [each.edit.after for each in found if each.edit.after.startswith("num_workers")] == [
        "num_workers=5"
    ]


def test_five_at_most():
    many = _diagnosis(*(_finding(f"STK{place}", "high", f"a{place}=1") for place in range(9)))
    assert len(ranked(judge(run(loader(IO))), [many])) == MOST_EDITS


def test_the_line_to_type_again_has_the_arguments_and_no_secret():
    asked = Command(("train.py", "--name", "a b", "--api-key", "abcdef123456"), 12.0)
    assert (
        asked.again("--fix") == f"stoker advise --fix --budget 12 train.py --name 'a b' --api-key {HIDDEN!r}"
    )
    assert (
        Command(("-m", "package.train", "x"), 60.0).again() == "stoker advise --budget 60 -m package.train x"
    )


def _stopped(late_s: float, *, kind: str = "interrupted") -> LoaderRecord:
    """A batch each 0.1 s for a second, then none for ``late_s``, which are of unknown cause."""
    given = [each * SECOND // 10 for each in range(1, 11)]
    made = loader({("fetch", 0, "io"): 0.5, ("fetch", -1, "unknown"): late_s})
    made.steps = {name: [0] * len(given) for name in STEP_COLUMNS}
    made.steps["given_ns"] = given
    made.events = [Event(given[-1] + int(late_s * SECOND), kind, "worker 1 is on dataset index 7")]
    return made


def test_a_batch_that_is_long_overdue_when_the_script_is_stopped_is_a_hang():
    hang = find_hang(run(_stopped(9.0), loader(IO, name="valid")))
    assert hang is not None
    assert (hang.waited_ns, hang.usual_ns) == (9 * SECOND, SECOND // 10)
    assert "worker 1 is on dataset index 7" in hang.sentence
    assert "stoker doctor train.py:" in hang.finding("train.py").advice


def test_a_slow_batch_is_no_hang():
    assert find_hang(run(_stopped(0.5))) is None
    assert find_hang(run(_stopped(9.0, kind="error"))) is None


def test_what_else_is_said_leaves_out_the_last_wait():
    record = run(_stopped(9.0))
    left = without_hang(record).loaders[0]
    assert [(each.stage, each.cause) for each in left.blame] == [("fetch", "io")]
    assert left.totals.wait_ns == SECOND // 2
    assert record.loaders[0].totals.wait_ns == 9 * SECOND + SECOND // 2


def test_workers_that_died_when_the_script_was_ended_are_forgotten():
    made = loader(IO, totals={"worker_deaths": 2})
    made.events = [Event(SECOND, "worker_died", "killed"), Event(5 * SECOND, "worker_died", "killed")]
    record = run(made)
    forget_deaths(record, record.run.began_ns + 3 * SECOND)
    assert made.totals.worker_deaths == 1
    assert [each.at_ns for each in made.events] == [SECOND]


class TestForecast:
    """A row for each subject: its number, or why there is none."""

    def rows(self, made: LoaderRecord, diagnosis: Diagnosis | None = None) -> dict[str, ForecastRow]:
        found = forecast(run(made), made.name, made.site, (3,), diagnosis)
        return {each.subject: each for each in found}

    def test_all_subjects_have_one(self):
        rows = self.rows(loader(IO))
        assert set(rows) == {"workers", "cache", "device", "share", "threads"}
        assert rows["device"].text == "does not apply: no accelerator was used"
        assert rows["share"].text == "not known: the doctor has not examined this loader"

    def test_copies_to_the_device_that_the_loop_waits_for(self):
        row = self.rows(loader({("copy", -1, "parent"): 1.0}))["device"]
        assert row.change == pytest.approx(-0.5)

    def test_bytes_that_workers_copy(self):
        found = Finding("STK601", "moderate", "seen", "wrap", numbers={"total_bytes": 3 << 30})
        assert "saves 3 GiB" in self.rows(loader(IO), _diagnosis(found))["share"].text

    def test_random_samples_have_no_cache(self):
        varies = RandomnessFacts(
            (0,), 2, False, varies=True, workers_equal=False, epochs_equal=False, reproducible=True
        )
        diagnosis = replace(_diagnosis(), facts={"randomness": varies})
        row = self.rows(loader(IO), diagnosis)["cache"]
        assert (row.change, row.text) == (None, "does not apply: samples differ each time they are made")

    def test_samples_that_compute_have_no_threads(self):
        busy = loader(IO, workers=[worker(0, cpu=0.9), worker(1, cpu=0.9)])
        assert "samples compute" in self.rows(busy)["threads"].text


def _advice(**changed: Any) -> Advice:
    record = run(loader(IO))
    verdict = judge(record)
    diagnosis = _diagnosis(_finding("STK203", "high", "timeout=60"))
    usual = Advice(
        Command(("train.py",)), record, verdict, None, (diagnosis.subject,), (diagnosis,), ranked(verdict, [diagnosis]),
        (), (), (), forecast(record, "loader", "train.py:31", (), diagnosis), ("a note",), "0", False, False,
    )  # fmt: skip
    return replace(usual, **changed)


def test_the_json_is_as_the_schema_says():
    jsonschema = pytest.importorskip("jsonschema")
    hang = find_hang(run(_stopped(9.0)))
    assert hang is not None
    schema = json.loads((Path(__file__).parents[2] / "docs" / "findings.schema.json").read_text())
    for each in (_advice(), _advice(hang=hang, further=(hang.finding("train.py"),))):
        document = json.loads(json.dumps(as_json(each)))
        assert document["findings"][0]["code"] == "STK203"
        jsonschema.Draft202012Validator(schema).validate(document)


def test_the_page_has_the_edits_the_forecast_and_the_doctor():
    found = markdown.render(page.report(_advice()))
    for text in ("num_workers=5", "STK203", "## Forecast", "no accelerator was used"):
        assert text in found


def test_a_count_at_the_beginning_of_a_text_is_no_number_of_a_list():
    count, listed = "1 worker takes long " * 8, "1  " + "an edit " * 16
    found = terminal.indented([Line(f"   {count}"), Line(listed)], 100)
    assert [len(each.text) - len(each.text.lstrip()) - terminal.MARGIN for each in found] == [3, 3, 0, 3]


def test_a_hang_stands_first_on_the_screen():
    hang = find_hang(run(_stopped(9.0)))
    assert hang is not None
    text = screen.render(_advice(hang=hang, further=(hang.finding("train.py"),)))
    assert text.index("Do ") < text.index("Why ") < text.index("Edits ")
