"""A secret in the text of an error is written by no form of the doctor, the tuner, the bench and the report."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stoker._host.secrets import HIDDEN, masked
from stoker._record import journal
from stoker._record.finding import Edit, Finding, Gain
from stoker._record.schema import Event
from stoker._tools.doctor.bisection.bisect import Bisection
from stoker._tools.doctor.bisection.procedure import BisectionSetting, BisectionTrial, Conclusion
from stoker._tools.doctor.diagnosis import Diagnosis, Skip
from stoker._tools.doctor.facts import Missing
from stoker._tools.doctor.facts.trial import BisectionOutcome
from stoker._tools.doctor.forms import bisection, github, markdown, sarif, screen
from stoker._tools.doctor.forms import data as doctor_data
from stoker._tools.doctor.forms import html as doctor_html
from stoker._tools.render import chart_library, json_form, text
from stoker._tools.render import html as page
from stoker._tools.render import markdown as page_markdown
from stoker._tools.render.section import Chart, Code, Prose, Remark, Report, Section, SideBySide, Table
from stoker._tools.tune.comparison import Comparison, Lane
from stoker._tools.tune.forms import comparison, data, html
from stoker._tools.tune.forms import markdown as tune_markdown
from stoker._tools.tune.forms import screen as tune_screen
from stoker.cli.main import main
from tests.unit.doctor.diagnoses import target
from tests.unit.records import loader, run
from tests.unit.tuning.tunings import BEST, point, tuning

SECRET = "sk-AAAAbcdefghijklmnop1234567890abcd"
TEXT = f"ValueError: cannot open: tok\x1b[0men={SECRET} of bob://bob:hunter2secret@host"
HIDES = ("AAAAbcdefghijklmnop", "hunter2secret")


def clear(written: str) -> list[str]:
    """The secrets that can be read, wherever a line is broken."""
    flat = re.sub(r"\s+", "", written)
    return [each for each in HIDES if each in flat]


def diagnosed() -> Diagnosis:
    edit = Edit(f"open(token='{SECRET}')", before=TEXT, site="train.py:3", kind="shown")
    finding = Finding(
        "STK404",
        "high",
        f"sample 3 raises {TEXT}",
        TEXT,
        edit,
        Gain(0.1, "by the replay"),
        TEXT,
        {"error": TEXT},
    )
    return Diagnosis(
        f"train.py:make {TEXT}",
        (finding,),
        (Skip("STK502", TEXT),),
        ("STK101",),
        {
            "target": target("train.py", 3, source=TEXT),
            "scan": Missing(TEXT),
            "samples": [{"raised": (TEXT,)}],
        },
    )


def bisected() -> Bisection:
    outcome = BisectionOutcome(
        "error", text=TEXT, stack=f'  File "train.py", line 3\n    {TEXT}', printed=TEXT
    )
    trial = BisectionTrial(BisectionSetting(2), outcome)
    return Bisection(
        "train.py:make", None, (trial,), Conclusion(f"it fails: {outcome.text}", (), trial, False)
    )


def compared() -> Comparison:
    lane = Lane(("stoker tuned",), point(BEST, 1.0, 1.0, failure=TEXT))
    return Comparison("train.py:make", 8, (lane,), TEXT, alike_text=TEXT, warnings=(TEXT,), failure=TEXT)


def reported() -> Report:
    table = Table(TEXT, (TEXT, "b"), ((TEXT, "1"),))
    chart = Chart("c", TEXT, TEXT, {"title": TEXT, "data": {"values": [{"a": TEXT, "b": 1}]}}, table)
    parts = (Prose(TEXT), Code(TEXT), table, chart, Remark("STK404", "high", TEXT, TEXT, TEXT, TEXT, TEXT))
    section = Section("verdict", TEXT, (*parts, SideBySide(((TEXT, parts),))))
    return Report(TEXT, TEXT, "high", (section,), {"run": {"text": [TEXT]}}, {"run": {"text": TEXT}})


def forms() -> Iterator[tuple[str, Callable[[], str]]]:
    """Every form, by name."""
    for name, doctors in (
        ("screen", screen), ("json", doctor_data), ("sarif", sarif), ("github", github), ("markdown", markdown),
        ("html", doctor_html),
    ):  # fmt: skip
        yield f"doctor {name}", lambda module=doctors: module.render(diagnosed())  # type: ignore[misc]
    yield "doctor verbose", lambda: screen.render(diagnosed(), 60, verbose=True)
    yield "doctor repr", lambda: repr(diagnosed()) + str(diagnosed().findings)
    yield "bisect screen", lambda: bisection.render(bisected(), 60)
    yield "bisect json", lambda: json.dumps(bisection.as_json(bisected()))
    told = {"failure": TEXT, "verdict": TEXT, "why": (TEXT,), "warnings": (TEXT,), "limit": TEXT}
    failed: dict[str, Any] = {**told, "points": (point(BEST, 1.0, 1.0, failure=TEXT),)}
    for name, tunes in (("screen", tune_screen), ("json", data), ("markdown", tune_markdown), ("html", html)):
        yield f"tune {name}", lambda module=tunes: module.render(tuning(**failed))  # type: ignore[misc]
    yield "tune repr", lambda: repr(tuning(**failed))
    yield "bench screen", lambda: comparison.render(compared(), 60)
    yield "bench json", lambda: comparison.as_json(compared())
    for name, pages in (("html", page), ("md", page_markdown), ("json", json_form), ("text", text)):
        yield f"report {name}", lambda module=pages: module.render(reported())  # type: ignore[misc]


@pytest.fixture(autouse=True)
def _no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart_library, "script", lambda: "")


@pytest.mark.parametrize(("name", "render"), [pytest.param(*each, id=each[0]) for each in forms()])
def test_no_form_shows_a_secret(name: str, render: Callable[[], str]) -> None:
    written = render()
    assert clear(written) == []
    assert HIDDEN in written or json.dumps(HIDDEN)[1:-1] in written or "repr" in name


def test_the_raw_data_in_a_page_holds_none_either() -> None:
    packed = re.findall(r'octet-stream" id="[^"]+">([^<]+)<', page.render(reported()))
    assert len(packed) == 1
    raw = gzip.decompress(base64.b64decode(packed[0])).decode()
    assert "cannot open" in raw
    assert clear(raw) == []


@pytest.mark.parametrize(
    "arguments", [[], ["--json"], *([f"-oout{each}"] for each in (".html", ".md", ".json", ".txt"))]
)
def test_what_others_wrote_into_a_record_or_a_diagnosis_is_masked(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents of older versions hold what was not masked then."""
    record, diagnosis = tmp_path / "run.json", tmp_path / "doctor.json"
    odd = loader({("fetch", 0, "io"): 2.0}, name=TEXT, dataset=TEXT, events=[Event(5, "stall", TEXT)])
    journal.write(run(odd, argv=[TEXT]), record)
    finding = {"code": "STK404", "severity": "high", "title": TEXT, "evidence": TEXT, "advice": TEXT}
    diagnosis.write_text(
        json.dumps(
            {
                "format": "stoker-diagnosis",
                "version": 1,
                "subject": TEXT,
                "worst": "high",
                "findings": [finding],
            }
        )
    )
    paths = [str(record)] if arguments in ([], ["--json"]) else [str(record), str(diagnosis)]
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["report", *paths, *arguments])
    assert done.exit_code == 0, done.output
    written = "".join(each.read_text() for each in tmp_path.glob("out.*"))
    assert clear(done.output + written) == []


def test_a_text_of_a_fact_is_masked_before_it_is_cut() -> None:
    for length in range(300, 420, 3):
        written = json.dumps(doctor_data.plain({"source": f"{'x ' * (length // 2)}{TEXT} {'y ' * 99}"}))
        assert [each for each in HIDES if each[:8] in written] == []


def test_the_doctor_writes_none_on_any_way(tmp_path: Path) -> None:
    """The whole way, from an error in a sandbox to a screen, a file and standard error."""
    script = tmp_path / "data.py"
    script.write_text(
        "class Data:\n"
        "    def __len__(self): return 8\n"
        f"    def __getitem__(self, index): raise ValueError({TEXT!r})\n"
        f"def broken(): raise ValueError({TEXT!r})\n"
    )
    output = tmp_path / "out.json"
    for arguments in (["--json"], ["-o", str(output)], ["--format", "sarif"]):
        done = CliRunner().invoke(main, ["doctor", f"{script}:Data", "--select", "STK404", *arguments])
        written = done.output + (output.read_text() if output.exists() else "")
        assert "STK404" in written, done.output
        assert clear(written) == []
    done = CliRunner().invoke(main, ["doctor", f"{script}:broken"])
    assert done.exit_code == 2
    assert "cannot open" in done.stderr
    assert clear(done.output) == []


@pytest.mark.parametrize(
    "shown",
    [
        "tokenizer=AutoTokenizer", "dataset.tokens: 52.1 MiB", "token_ids: int64", "max_tokens=4096", "pad_token_id: 50256",
        "python -u train.py", "--max-tokens 5120", "tokenization: fast",
        "wrong password given for user bob", "password is missing",
    ],
)  # fmt: skip
def test_what_datasets_of_text_are_made_of_is_no_secret(shown: str) -> None:
    assert masked(shown) == shown


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("password='correct horse battery'", f"password='{HIDDEN}'"),
        ("--password hunter3secret x", f"--password {HIDDEN} x"),
        ("curl -u bob:hunter7secret https://x", f"curl -u bob:{HIDDEN} https://x"),
        ("MYSQL_PWD=hunter6secret", f"MYSQL_PWD={HIDDEN}"),
        ("Cookie: session=hunter", f"Cookie: {HIDDEN}"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY----- x", f"{HIDDEN} x"),
        ("hf_AbCdEf…", f"{HIDDEN}…"),
        ("key 0123456789abcdef01234567…", f"key {HIDDEN}…"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzd…", f"{HIDDEN}…"),
        ("postgres://bob:hunter2sec…", f"postgres://bob:{HIDDEN}…"),
        ("PASSWORD hunter9secret refused", f"PASSWORD {HIDDEN} refused"),
        ("pass\x1b[0mword=hunter5secret", f"password={HIDDEN}"),
    ],
)
def test_secrets_of_other_shapes(text: str, left: str) -> None:
    assert masked(text) == left
