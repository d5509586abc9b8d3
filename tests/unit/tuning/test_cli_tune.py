"""``stoker tune`` with tunings made by hand: options, what is printed where, exit codes, and patches of real files."""

from __future__ import annotations

import errno
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune import tuning as tuner
from stoker._tools.tune.edits import edits
from stoker._tools.tune.forms import data
from stoker._tools.tune.result import Tuning
from stoker.cli import tune
from stoker.cli.command import progress
from stoker.cli.command.exit_status import tidy_ends
from stoker.cli.main import main
from stoker.errors import RecordError, TargetError
from tests.unit.tuning.tunings import BEST, NOW, OTHER, point, target, tuning

SOURCE = "from torch.utils.data import DataLoader, Dataset\n\nloader = DataLoader(data, 64,  # ours\n    num_workers=0)\n"


class Said:
    """What the tuner is made to answer, and what it was asked."""

    answer: Tuning | BaseException = tuning()
    asked: dict[str, Any]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> type[Said]:
    def stand_in(target: object, **options: Any) -> Tuning:
        Said.asked = {"target": target, **options}
        options["progress"]("one worker", 0.1, None)
        options["progress"]("3 workers", 0.5, tuning())
        if isinstance(Said.answer, BaseException):
            raise Said.answer
        return Said.answer

    Said.answer = tuning()
    monkeypatch.setattr(tuner, "tune", stand_in)
    return Said


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["tune", *map(str, arguments)])


def test_the_result_alone_is_on_standard_output(said: type[Said]) -> None:
    result = run("train.py:loader")
    assert result.exit_code == 0
    assert result.stdout.startswith("Tuned     train.py:loader")
    assert result.stderr.startswith("[ 10%] one worker\n")
    told = json.loads(run("train.py:loader", "--json").stdout)
    assert told["recommended"]["num_workers"] == 3


def test_options_reach_the_tuner(said: type[Said], tmp_path: Path) -> None:
    run(
        "a.b:c",
        "--batch-size",
        "4",
        "--step-ms",
        "12.5",
        "--accumulate",
        "4",
        "--ranks",
        "8",
        "--budget",
        "9",
        "--no-save",
    )
    said.asked.pop("progress")
    assert said.asked == {
        "target": "a.b:c", "batch_size": 4, "step": None, "step_s": 0.0125, "record": None, "accumulate": 4, "ranks": 8,
        "budget_s": 9.0, "save": False,
    }  # fmt: skip
    run("a.b:c", "--step", "train:step")
    assert (said.asked["step"], said.asked["step_s"], said.asked["budget_s"]) == ("train:step", None, 45.0)
    run("a.b:c", "--record", tmp_path)
    assert said.asked["record"] == str(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        (), ("a:b", "--step-ms", "3", "--step", "a:f"), ("a:b", "--step", "a:f", "--record", "."), ("a:b", "--step-ms", "0"),
        ("a:b", "--step-ms", "nan"), ("a:b", "--budget", "0.5"), ("a:b", "--budget", "inf"), ("a:b", "--json", "--fix"),
        ("a:b", "--json", "--write"), ("a:b", "--batch-size", "0"), ("a:b", "--ranks", "0"), ("a:b", "--accumulate", "0"),
        ("a:b", "--record", "nowhere.json"), ("--show", "nowhere.json"), ("a:b", "--show", __file__), ("a:b", "--output", __file__),
    ],
    ids=" ".join,
)  # fmt: skip
def test_misuse_is_code_2_and_nothing_on_standard_output(
    said: type[Said], arguments: tuple[str, ...]
) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output


def test_a_target_that_cannot_be_loaded_is_told_as_the_doctor_does(said: type[Said]) -> None:
    said.answer = TargetError("a:b raised ValueError: no", "File a.py, line 3", "printed before")
    result = run("a:b")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith(
        "stoker tune: a:b raised ValueError: no\n  File a.py, line 3\n  printed before\n"
    )
    for error in (ValueError("batch_size and a batch sampler"), RecordError("x.json is no run record")):
        said.answer = error
        result = run("a:b")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.endswith(f"stoker tune: {error}\n")


def test_exit_codes_say_how_it_ended(said: type[Said]) -> None:
    said.answer = tuning(failure="sample 3 raised ValueError: no", stopped="failed")
    result = run("a:b")
    assert result.exit_code == 1
    assert "sample 3 raised ValueError" in result.stdout
    assert run("a:b", "--json").exit_code == 1
    said.answer = tuning(stopped="interrupted")
    result = run("a:b")
    assert result.exit_code == 130
    assert "num_workers=3" in result.stdout
    said.answer = KeyboardInterrupt()
    assert run("a:b").exit_code == 130


def test_a_record_is_written_and_shown_again(said: type[Said], tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    first = run("train.py:loader", "--output", path)
    assert data.read(path) == tuning()
    again = run("--show", path)
    assert again.exit_code == 0
    assert again.stdout.splitlines()[:8] == first.stdout.splitlines()[:8]
    assert json.loads(run("--show", path, "--json").stdout) == json.loads(path.read_text())
    assert "--force" in run("train.py:loader", "--output", path).stderr
    assert run("train.py:loader", "--output", path, "--force").exit_code == 0
    assert "cannot write" in run("a:b", "--output", tmp_path / "none" / "out").stderr
    path.write_text("{}")
    broken = run("--show", path)
    assert (broken.exit_code, broken.stdout) == (2, "")
    assert "no tuning of stoker" in broken.stderr


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return path


def test_a_patch_is_printed_and_made_on_demand(said: type[Said], script: Path) -> None:
    said.answer = tuning(file=str(script), line=3)
    result = run("train.py:loader", "--fix")
    assert result.exit_code == 0
    assert result.stdout.startswith("--- a/")
    assert "+    num_workers=3,\n+    prefetch_factor=4,\n+    persistent_workers=True)\n" in result.stdout
    assert "+from stoker import DataLoader\n" in result.stdout
    assert "Verdict" in result.stderr
    assert script.read_text() == SOURCE
    assert run("train.py:loader", "--write").exit_code == 0
    assert script.read_text() == (
        "from stoker import DataLoader\nfrom torch.utils.data import Dataset\n\nloader = DataLoader(data, 64,  # ours\n"
        "    num_workers=3,\n    prefetch_factor=4,\n    persistent_workers=True)\n"
    )
    moved = tuning(file=str(script), line=4)  # where the call is now: the same patch again changes nothing
    said.answer = moved
    assert "Nothing to change in a file." in run("train.py:loader", "--write").stderr


def test_arguments_go_with_the_workers(said: type[Said], script: Path) -> None:
    script.write_text(
        "from stoker import DataLoader\nx = DataLoader(data, 64, num_workers=8, executor='thread', prefetch_factor=2)\n"
    )
    before = Setting(8, 2, executor="thread")
    said.answer = tuning(
        Setting(0),
        baseline=before,
        file=str(script),
        line=2,
        edits=edits(target(before), Setting(0)),
        points=(point(Setting(0), 9.0, 0.5),),
    )
    assert run("a:b", "--write").exit_code == 0
    assert script.read_text() == "from stoker import DataLoader\nx = DataLoader(data, 64, num_workers=0)\n"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "from torch.utils.data import DataLoader\n\nloader = DataLoader(data, **options)\n",
            "may be in **options",
        ),
        ("import lib\n\nloader = lib.make(data)\n", "no call of a DataLoader at line 3"),
        ("from lib import DataLoader\n\nloader = DataLoader(data)\n", "not imported from torch.utils.data"),
        ("loader = (", "is no Python"),
    ],
)
def test_what_cannot_be_changed_as_a_whole_is_left_alone(
    said: type[Said], script: Path, source: str, reason: str
) -> None:
    script.write_text(source)
    said.answer = tuning(file=str(script), line=3)
    result = run("train.py:loader", "--write")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert reason in result.stderr
    assert "Left to you: num_workers=0 → num_workers=3" in result.stderr
    assert script.read_text() == source


def test_without_a_file_or_a_call_the_edit_is_told_in_words(said: type[Said]) -> None:
    said.answer = tuning(file=None)
    assert "the file that makes the loader is unknown" in run("a:b", "--fix").stderr
    said.answer = tuning(file="train.py", edits=edits(target(loader=False), BEST))
    assert "there is no call that could be changed" in run("a:b", "--fix").stderr
    said.answer = tuning(failure="sample 3 raised", file=__file__)
    assert "No patch: what was not measured" in run("a:b", "--write").stderr
    said.answer = tuning(stopped="interrupted", points=(), file=__file__)
    assert "No patch: what was not measured" in run("a:b", "--write").stderr
    said.answer = tuning(NOW, edits=(), edit=None)
    assert "Nothing to change in a file." in run("a:b", "--fix").stderr


def test_a_record_can_be_made_a_change_later(script: Path, tmp_path: Path) -> None:
    record = tmp_path / "tuning.json"
    record.write_text(data.render(tuning(file=str(script), line=3)))
    assert run("--show", record, "--write").exit_code == 0
    assert "num_workers=3" in script.read_text()


def test_lines_come_when_something_changes_and_not_too_often(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    lines = progress.Lines()
    lines.tell("one worker", 0.0)
    lines.tell("two workers", 0.1)
    now = 5.0
    lines.tell("one worker", 0.1)
    lines.tell(tune._progress_text("3 workers", tuning(OTHER)), 1.7)
    now = 10.0
    lines.tell(tune._progress_text("3 workers", tuning(OTHER)), 1.8)
    assert capsys.readouterr().err.splitlines() == [
        "[  0%] one worker",
        "[100%] 3 workers · best so far: 8 threads × 2, 4 threads each, spawn, split, pinned (−41%)",
    ]


def test_a_bar_on_a_terminal_goes_when_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "140")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.progress("Tuning") as tell:
        tell(tune._progress_text("racing [5] settings", tuning()), 0.5)
    shown = stream.getvalue()
    assert "Tuning" in shown
    assert "racing [5] settings · best so far: 3 workers × 4" in shown
    assert shown.endswith("\x1b[2K")  # the line is wiped


def test_a_disk_that_is_full_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    with pytest.raises(SystemExit) as ended, tidy_ends():
        raise OSError(errno.ENOSPC, "No space left on device")
    assert ended.value.code == 2
    assert "cannot write the answer: No space left on device" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError), tidy_ends():
        raise FileNotFoundError(errno.ENOENT, "no")
