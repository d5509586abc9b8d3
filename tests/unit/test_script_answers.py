"""``stoker profile`` and ``run`` with ``--json``, ``--fix``, ``--write`` and ``-o``: what stands on standard output, alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stoker._record import journal
from stoker._tools.profile import supervisor
from stoker._tools.render import chart_library
from stoker.cli.main import main
from tests.unit.records import loader, run, steps
from tests.warm import environment

SCRIPT = "from stoker import DataLoader\nloader = DataLoader(range(8), batch_size=64, num_workers=2)\n"
WAITS = {("fetch", 0, "io"): 4.0, ("fetch", 1, "io"): 4.0}


@pytest.fixture(autouse=True)
def _given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[supervisor.ScriptExit]:
    """A script that has run, its record, and the ends of the command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chart_library, "script", lambda: "")
    Path("train.py").write_text(SCRIPT)
    ended: list[supervisor.ScriptExit] = []

    def supervise(command: list[str], environ: dict[str, str]) -> supervisor.ScriptExit:
        made: dict[str, Any] = {"site": "train.py:2", "steps": steps(20), "engine": "stoker"}
        journal.write(run(loader(WAITS, **made)), Path(environ["STOKER_RECORD"]) / "1-0.jsonl")
        return supervisor.ScriptExit(1, 0, 0, 0)

    monkeypatch.setattr(supervisor, "supervise", supervise)
    monkeypatch.setattr(supervisor, "end_as", ended.append)
    return ended


def told(words: str, capfd: pytest.CaptureFixture[str]) -> tuple[str, str]:
    with pytest.raises(SystemExit):
        main(words.split(), prog_name="stoker")
    captured = capfd.readouterr()
    return captured.out, captured.err


@pytest.mark.parametrize("mode", ["profile", "run"])
def test_the_verdict_as_json(mode: str, capfd: pytest.CaptureFixture[str]) -> None:
    out, err = told(f"{mode} --json --verdict verdict.json train.py", capfd)
    assert json.loads(out) == json.loads(Path("verdict.json").read_text())
    assert json.loads(out)["format"] == "stoker-verdict"
    assert json.loads(out)["loaders"][0]["findings"]
    assert "Record" in err
    assert "Evidence" not in err
    assert "Evidence" in told(f"{mode} train.py", capfd)[1]


def test_the_first_edit_as_a_patch_and_made(capfd: pytest.CaptureFixture[str]) -> None:
    verdict = json.loads(told("profile --json train.py", capfd)[0])
    first = next(each["edit"] for each in verdict["loaders"][0]["findings"] if each["edit"])
    out, err = told("profile --fix train.py", capfd)
    assert out.startswith("--- a/train.py\n+++ b/train.py\n")
    assert first["after"] in out
    assert "Evidence" in err
    assert "Nothing was written. --write makes the change." in err
    assert Path("train.py").read_text() == SCRIPT
    again, err = told("profile --write train.py", capfd)
    assert again == out
    assert "Changed" in err
    assert first["after"] in Path("train.py").read_text()


def test_other_ranks_leave_the_answer_to_the_first(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, said in (("0", True), ("1", False)):
        monkeypatch.setenv("RANK", rank)
        assert bool(told("profile --json train.py", capfd)[0]) is said


def test_the_name_of_the_file_says_whether_it_is_a_record_or_a_report(
    capfd: pytest.CaptureFixture[str],
) -> None:
    begins = {
        ".html": "<!doctype html>",
        ".md": "## ",
        ".txt": "STOKER REPORT",
        ".json": '{"format":"stoker-run"',
        "": "{",
    }
    for suffix, begin in begins.items():
        err = told(f"profile -q -o out{suffix} train.py", capfd)[1]
        assert Path(f"out{suffix}").read_text().startswith(begin), err
    assert len(list(Path().glob("train-*.stoker.json"))) == 3  # a report has its record beside it


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--json --fix", "--json and --fix contradict each other"),
        ("--json --write", "--json and --fix contradict each other"),
        ("-o out.sarif", "asks for a form that is not written here"),
    ],
)
def test_what_contradicts_itself_is_refused(words: str, said: str) -> None:
    refused = CliRunner().invoke(main, ["profile", *words.split(), "train.py"])
    assert refused.exit_code == 2
    assert said in " ".join(refused.stderr.split())


def test_what_the_script_prints_goes_to_standard_error(tmp_path: Path) -> None:
    """By Python, by a program that it starts, and by the descriptor itself; its exit code stays."""
    script = tmp_path / "talks.py"
    script.write_text(
        "import os, subprocess, sys\nprint('from python')\nos.write(1, b'from below\\n')\n"
        "subprocess.run(['echo', 'from a program'])\nsys.exit(3)\n"
    )
    command = [sys.executable, "-m", "stoker", "profile", "--json", "-q", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment())
    assert done.returncode == 3
    assert json.loads(done.stdout)["format"] == "stoker-verdict"
    for each in ("from python", "from below", "from a program"):
        assert each in done.stderr
