"""``stoker demo`` on acts that stand in: what it writes where, what it refuses, how it ends."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stoker._tools.demo import runner
from stoker._tools.render import chart_library
from stoker.cli.demo import _progress
from stoker.cli.main import main
from tests.unit import demos
from tests.unit.test_demo import Terminal, fail, interrupt

ACTS: dict[str, Any] = {"gap": demos.act("The gap"), "killed": demos.act("A worker killed")}


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    acts = ACTS | {"doctor": demos.act("Broken", run=fail), "tuner": demos.act("Stopped", run=interrupt)}
    monkeypatch.setattr(runner, "known", lambda: acts)
    monkeypatch.setattr(runner, "act", acts.__getitem__)
    monkeypatch.setattr(chart_library, "script", lambda: "")
    monkeypatch.chdir(tmp_path)


def demo(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["demo", "--quick", *arguments])


def test_a_summary_and_a_page_and_never_over_another(tmp_path: Path) -> None:
    done = demo("--only", "gap", "--only", "killed")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-3:] == [
        "gap       found 1",
        "killed    found 1",
        "To look at: stoker-report.html",
    ]
    assert "The gap" in done.stderr
    first = Path("stoker-report.html").read_text()
    assert "The gap" in first

    done = demo("--only", "gap")
    assert "To look at: stoker-report-2.html (stoker-report.html already exists)" in done.stdout
    assert Path("stoker-report.html").read_text() == first

    done = demo("--only", "killed", "--force")
    assert "To look at: stoker-report.html" in done.stdout
    assert Path("stoker-report.html").read_text() != first
    assert {each.name for each in tmp_path.iterdir()} == {"stoker-report.html", "stoker-report-2.html"}


def test_an_act_with_servers_runs_only_when_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    acts = {"gap": demos.act("The gap"), "ray": demos.act("A cluster")}
    monkeypatch.setattr(runner, "known", lambda: acts)
    assert "A cluster" not in demo().stderr
    assert "A cluster" in demo("--only", "ray").stderr
    assert "A cluster  (only with --only)" in demo("--list").stdout


def test_all_that_was_measured_as_json() -> None:
    printed = demo("--only", "gap", "--json")
    assert json.loads(printed.stdout)["acts"]["gap"]["result"] == {"found": 1}
    assert "To look at: stoker-report.html" in printed.stderr

    kept = demo("--only", "gap", "--record", "demo.json", "-o", "mine.html")
    assert kept.exit_code == 0, kept.output
    assert "All that was measured: demo.json" in kept.stdout
    told = json.loads(Path("demo.json").read_text())
    assert (told["format"], told["version"], told["quick"]) == ("stoker-demo", 1, True)
    assert Path("mine.html").exists()

    again = CliRunner().invoke(main, ["report", "demo.json", "-o", "again.html"])
    assert again.exit_code == 0, again.output
    assert "The gap" in Path("again.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "magic"), "there is no act magic: gap, killed"),
        (("-o", "taken.html"), "taken.html exists: pass --force"),
        (("--record", "taken.html"), "taken.html exists: pass --force"),
        (("-o", "nowhere/x.html"), "is no folder to write to"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(arguments: tuple[str, ...], said: str) -> None:
    Path("taken.html").write_text("mine")
    done = demo(*arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert Path("taken.html").read_text() == "mine"


def test_an_act_that_fails_is_told_and_shows_in_the_exit_code() -> None:
    done = demo("--only", "gap", "--only", "doctor")
    assert done.exit_code == 1
    assert "doctor    Broken: OSError: no such luck" in done.stdout
    assert "To look at" in done.stdout
    nothing = demo("--only", "doctor", "-o", "none.html")
    assert "No page was written: there is nothing to show." in nothing.stdout
    assert not Path("none.html").exists()


def test_without_a_chart_library_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise ImportError("the chart library is missing: pip install it")

    monkeypatch.setattr(chart_library, "script", missing)
    done = demo("--only", "gap")
    assert done.exit_code == 0
    assert "No page was written: the chart library is missing: pip install it" in done.stdout


def test_ctrl_c_shows_what_is_done() -> None:
    done = demo("--only", "gap", "--only", "tuner")
    assert done.exit_code == 130
    assert done.stdout.startswith("Interrupted: what was measured")
    assert "gap       found 1" in done.stdout
    assert "tuner     Stopped: interrupted" in done.stdout
    assert Path("stoker-report.html").exists()


def test_the_acts_are_listed() -> None:
    done = demo("--list")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == "gap         1 s    2 s  The gap"
    assert not list(Path().iterdir())


@pytest.mark.parametrize("columns", [60, 100])
def test_a_bar_on_a_terminal_stays_on_its_line(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", terminal)
    with _progress() as tell:
        tell("Scaling: " + "many words " * 20, 0.5)
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).replace("\r", "\n").splitlines()
    assert any(" 50% " in line and "Scaling: many" in line for line in drawn)
    assert all(len(line) <= columns for line in drawn)


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with _progress() as tell:
        for what in ("First", "First: a", "First: b", "Second", "Second: a"):
            tell(what, 0.5)
    assert capsys.readouterr().err.splitlines() == ["[ 50%] First", "[ 50%] Second"]
