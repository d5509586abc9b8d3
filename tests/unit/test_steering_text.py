"""Names and errors that hold escape codes: a report holds none in any form, wherever it is written to."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from stoker._host.secrets import cleaned
from stoker._record import journal
from stoker._record.schema import Event, SlowestSample
from stoker._tools.render import chart_library, html, json_form, markdown, text
from stoker._tools.render.section import Chart, Code, Prose, Remark, Report, Section, SideBySide, Table
from stoker._tools.render.terminal import Line, text_of
from stoker.cli.main import main
from tests.unit.records import loader, run

STEERING = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x9b1m\u202egnp"
PLAIN = "red1mgnp"


def steers(written: str) -> set[str]:
    return {each for each in written if each != "\n" and (ord(each) < 32 or 127 <= ord(each) < 160)} | (
        {"\u202e"} & set(written)
    )


def everything() -> Report:
    """A report with a steering text in every place for one."""
    table = Table(STEERING, (STEERING, "b"), ((STEERING, "1"),))
    remark = Remark(STEERING, "high", STEERING, STEERING, STEERING, STEERING, STEERING)
    parts = (Prose(STEERING), Code(STEERING), table, Chart("c", STEERING, STEERING, {}, table), remark)
    section = Section("verdict", STEERING, (*parts, SideBySide(((STEERING, parts),))))
    return Report(STEERING, STEERING, "high", (section, Section("other", STEERING, parts)))


@pytest.fixture(autouse=True)
def _no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart_library, "script", lambda: "")


@pytest.mark.parametrize("render", [text.render, markdown.render, html.render, json_form.render])
def test_no_form_of_a_report_steers_a_terminal(render: object) -> None:
    written = render(everything())  # type: ignore[operator]
    assert "red" in written
    assert steers(written) == set()


def test_neither_do_screens_and_pieces_of_markdown() -> None:
    assert cleaned(STEERING) == PLAIN
    assert text_of([Line(STEERING), Line("b")]) == f"{PLAIN}\nb"
    assert steers(markdown.escaped(STEERING) + markdown.code(STEERING)) == set()


@pytest.mark.parametrize("name", ["report.md", "report.txt", "report.html", "report.json"])
def test_a_file_of_a_hostile_record_holds_no_escape_code(name: str, tmp_path: Path) -> None:
    """`report -o` once wrote them as they were, and `cat report.md` obeyed."""
    hostile = loader(
        {("fetch", 0, "io"): 2.0}, name=STEERING, dataset=STEERING, site=STEERING,
        events=[Event(5, "stall", STEERING)], slowest=[SlowestSample(STEERING, 10**9, 0, 0, 1, 2, 10**8)],
    )  # fmt: skip
    record, output = tmp_path / "run.json", tmp_path / name
    journal.write(run(hostile, argv=[STEERING]), record)
    done = CliRunner().invoke(main, ["report", str(record), "-o", str(output)])
    assert done.exit_code == 0, done.output
    assert PLAIN in output.read_text().replace("\\", "")
    assert steers(output.read_text()) == set()


def test_a_refusal_holds_none_either(tmp_path: Path) -> None:
    path = tmp_path / f"{STEERING}.json"
    done = CliRunner().invoke(main, ["report", str(path)])
    assert done.exit_code == 2
    assert PLAIN in done.stderr
    assert steers(done.stderr) == set()
