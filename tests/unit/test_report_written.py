"""``stoker report -o``: forms, names, what is never written over, and what is said when it cannot be done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stoker._record import journal
from stoker._tools.render import chart_library, json_form, markdown, text
from stoker._tools.render.section import Chart, Code, Prose, Remark, Report, Section, SideBySide, Table
from stoker._tools.render.terminal import encodable
from stoker.cli.main import main
from tests.unit.profiled import Profiled
from tests.unit.records import SECOND, loader, run, steps

WAITS_S = {("fetch", 0, "io"): 0.9}
DIAGNOSIS: dict[str, Any] = {
    "format": "stoker-diagnosis",
    "version": 1,
    "subject": "train.py:dataset",
    "worst": "high",
    "findings": [
        {"code": "STK201", "severity": "high", "title": "It hurts", "evidence": "seen", "advice": "Mend it."}
    ],
}


@pytest.fixture(autouse=True)
def _no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart_library, "script", lambda: "")


def _report(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def _record(folder: Path, name: str = "run.stoker.json", **changed: Any) -> Path:
    journal.write(run(loader(WAITS_S, steps=steps(20)), **changed), folder / name)
    return folder / name


def test_the_name_of_the_file_or_the_format_tells_what_is_written(tmp_path: Path) -> None:
    record = _record(tmp_path)
    begins = {"html": "<!doctype html>", "md": "## stoker report", "json": "{", "txt": "STOKER REPORT"}
    for suffix, begin in begins.items():
        out = tmp_path / f"report.{suffix}"
        result = _report(record, "-o", out)
        assert result.exit_code == 0, result.stderr
        assert result.stdout == ""
        assert result.stderr.startswith(f"Wrote {out} (")
        assert out.read_text().startswith(begin)
    for form in ("md", "json", "text", "html"):
        assert _report(record, "--format", form).stdout.startswith(begins["txt" if form == "text" else form])
    assert _report(record, "--format", "html").stdout_bytes == (tmp_path / "report.html").read_bytes()
    plain = tmp_path / "report"
    assert _report(record, "-o", plain, "--format", "md").exit_code == 0
    assert plain.read_text() == (tmp_path / "report.md").read_text()
    unknown = _report(record, "-o", tmp_path / "report.pdf")
    assert unknown.exit_code == 2
    assert "pass --format html|md|json|text" in unknown.stderr


def test_json_is_versioned_and_has_the_verdicts_and_the_tables(tmp_path: Path) -> None:
    record = _record(tmp_path)
    told = json.loads(_report(record, "--format", "json", "--price-per-hour", "3").stdout)
    assert (told["format"], told["version"]) == ("stoker-report", 1)
    verdict = told["verdicts"]["run"]
    assert verdict == json.loads(_report(record, "--json", "--price-per-hour", "3").stdout)
    charts = [part for section in told["sections"] for part in section["parts"] if part["kind"] == "chart"]
    assert charts
    assert all(part["table"]["rows"] and "spec" not in part for part in charts)


def test_nothing_is_written_over_another_file_or_over_the_record(tmp_path: Path) -> None:
    record, out = _record(tmp_path), tmp_path / "report.md"
    out.write_text("mine")
    refused = _report(record, "-o", out)
    assert (refused.exit_code, refused.stderr) == (
        2,
        f"stoker report: {out} exists: pass --force to write over it\n",
    )
    assert out.read_text() == "mine"
    assert _report(record, "-o", out, "--force").exit_code == 0
    assert out.read_text().startswith("## stoker report")
    itself = _report(record, "-o", record, "--force", "--format", "html")
    assert (itself.exit_code, itself.stderr.count("\n")) == (2, 1)
    assert json.loads(record.read_text())["format"] == "stoker-run"
    nowhere = _report(record, "-o", tmp_path / "no" / "report.html")
    assert (nowhere.exit_code, nowhere.stderr.count("\n")) == (2, 1)
    assert "cannot write" in nowhere.stderr


def test_what_contradicts_is_refused(tmp_path: Path) -> None:
    record = _record(tmp_path)
    for arguments in (("--json", "--format", "md"), ("--what-if", "workers=4", "--format", "md")):
        assert _report(record, *arguments).exit_code == 2


def test_two_runs_stand_side_by_side_and_the_screen_stays_as_it_was(tmp_path: Path) -> None:
    paths = [
        _record(tmp_path, "before.stoker.json"),
        _record(
            tmp_path,
            "after.stoker.json",
            id="9-9",
            began_unix_ns=1_790_000_900 * SECOND,
            began_ns=907 * SECOND,
        ),
    ]
    told = _report(*paths, "--format", "md").stdout
    headline = told.splitlines()[2]
    assert "before" in headline
    assert "after" in headline
    assert "#### before" in told
    assert _report(*paths).stdout.startswith("Verdict   The training loop waits 47% of the time")


def test_a_diagnosis_alone_is_shown_as_text_without_being_asked(tmp_path: Path) -> None:
    path = tmp_path / "doctor.json"
    path.write_text(json.dumps(DIAGNOSIS))
    shown = _report(path)
    assert shown.exit_code == 0
    assert "[high] STK201: It hurts" in shown.stdout
    assert _report(path, "--json").exit_code == 2
    assert _report(path, _record(tmp_path), "-o", tmp_path / "both.html").exit_code == 0


def test_a_profilers_trace_has_a_report_too(tmp_path: Path) -> None:
    profiled = Profiled()
    for _ in range(5):
        with profiled.step():
            profiled.next(8)
            profiled.launch(2)
    path = profiled.write(tmp_path / "a.pt.trace.json")
    told = _report(path, "--format", "md", "--price-per-hour", "3")
    assert told.exit_code == 0, told.stderr
    assert "**The device waits for data 80% of the time.**" in told.stdout
    assert "Where the wall time went" in told.stdout
    assert "per month at 3 an hour" in told.stdout
    mixed = _report(path, _record(tmp_path), "-o", tmp_path / "x.html")
    assert (mixed.exit_code, mixed.stderr.count("\n")) == (2, 1)


def test_what_cannot_be_read_is_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text('{"format":"stoker-run","version":1,')
    (tmp_path / "newer.json").write_text(json.dumps({**DIAGNOSIS, "version": 7}))
    (tmp_path / "bytes.json").write_bytes(bytes(range(256)))
    (tmp_path / "none").mkdir()
    for name in ("cut.json", "newer.json", "bytes.json", "none", "missing.json"):
        result = _report(tmp_path / name, "-o", tmp_path / "out.html")
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.stderr
        assert name in result.stderr
    assert not (tmp_path / "out.html").exists()


def test_without_the_chart_library_a_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise ImportError(
            "the chart library is missing from this installation: pip install vl-convert-python"
        )

    monkeypatch.setattr(chart_library, "script", missing)
    result = _report(_record(tmp_path), "-o", tmp_path / "out.html")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "pip install" in result.stderr


REMARK = Remark("c`x", "high", "Title | <b>", "It *is*.", "Do `this`.", "a = 1\nb = ```2```", "much")
TABLE = Table(
    "Of <things>", ("name", "count"), (("a|b `c|d`", "1"), ("@somebody", "22")), numeric=frozenset({1})
)
SAMPLE = Report(
    "a report",
    "It #1 is _so_.",
    "high",
    (
        Section("one", "One", (Prose("Plain `code` and ` alone"), Code("x = 1", "python"), TABLE)),
        Section(
            "two",
            "Two",
            (
                Chart("c", "A chart", "It rises.", {}, TABLE),
                SideBySide((("l", (REMARK,)), ("r", (Prose("p"),)))),
            ),
        ),
    ),
)


def test_markdown_keeps_what_is_text_as_text() -> None:
    told = markdown.render(SAMPLE)
    assert told.startswith("## a report\n\n🔴 **It \\#1 is \\_so\\_.**")
    assert "Plain `code` and  alone" in told
    assert "| a\\|b `c\\|d` | 1 |" in told
    assert "@\u2060somebody" in told
    assert "|---|---:|" in told
    assert "<summary>Of &lt;things&gt;</summary>" in told
    assert "**cx** Title \\| &lt;b&gt;" in told
    assert "  ````\n  a = 1\n  b = ```2```\n  ````" in told
    assert told.count("<details>") == told.count("</details>") == 2


def test_markdown_stays_within_a_comment() -> None:
    rows = tuple((f"row {place}" * 40, "1") for place in range(30))
    many = tuple(Section(f"s{place}", "S", (Table("t", ("a", "b"), rows),)) for place in range(20))
    told = markdown.render(Report("t", "h", "none", many))
    assert len(told.encode()) < 60_000
    assert "rows more" in told


@pytest.mark.parametrize("width", [60, 80, 100])
def test_text_keeps_to_its_width_and_says_all(width: int) -> None:
    told = text.render(SAMPLE, width)
    assert all(len(line) <= width for line in told.splitlines())
    for each in (
        "A REPORT",
        "Plain code",
        "    x = 1",
        "A chart: It rises.",
        "[high] cx",
        "Gain: much",
        "    > a = 1",
        "== r",
        "22",
    ):
        assert each in told


def test_text_breaks_columns_or_lists_rows_where_there_is_no_room() -> None:
    wide = Table("t", ("what", "why"), (("short", "word " * 40),))
    broken = text.table(wide, 60)
    assert all(len(line) <= 60 for line in broken)
    assert len(broken) > 4
    many = Table(
        "t",
        tuple(f"column{place}" for place in range(9)),
        (tuple(["1234567"] * 9),) * 12,
        frozenset(range(9)),
    )
    listed = text.table(many, 60)
    assert listed[1].startswith("  - column0 1234567; column1")
    assert listed[-1] == "  … 2 rows more"


def test_text_can_be_written_where_there_is_only_ascii(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as file:
        file.write(encodable(text.render(SAMPLE), file))


def test_json_has_every_part() -> None:
    told = json_form.as_json(SAMPLE)
    kinds = [part["kind"] for section in told["sections"] for part in section["parts"]]
    assert kinds == ["prose", "code", "table", "chart", "beside"]
    assert told["sections"][1]["parts"][1]["columns"][0]["parts"][0]["edit"] == REMARK.edit
    json.loads(json_form.render(SAMPLE))
