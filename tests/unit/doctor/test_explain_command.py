"""``stoker explain``: what it takes, what it prints, how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import stoker
from stoker._record import schema
from stoker._tools.doctor.catalogue import catalogue, check_of
from stoker._tools.report.verdict.cause_pages import CAUSES, DETAILS, PAGES
from stoker._tools.report.verdict.codes import CODES, REMEDIES
from stoker._tools.report.verdict.reasons import TAKERS
from stoker._tools.report.verdict.table import RECORDING
from stoker._tools.verify import codes as verify_codes
from stoker.cli.main import main

KILLED = "RuntimeError: DataLoader worker (pid 31) is killed by signal: Segmentation fault. "


def run(*arguments, **more):
    return CliRunner().invoke(main, ["explain", *arguments], **more)


def test_a_file(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(f"first\n{KILLED}\n")
    result = run(str(path))
    assert result.exit_code == 0
    assert result.output.startswith("STK801")
    assert "line 2: RuntimeError: DataLoader worker" in result.output
    assert len(result.output.splitlines()) <= 24
    assert all(len(line) <= 100 for line in result.output.splitlines())


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_standard_input(arguments):
    result = run(*arguments, input=KILLED)
    assert result.exit_code == 0
    assert result.output.startswith("STK801")


def test_what_is_not_recognised_ends_with_1():
    result = run(input="ValueError: no")
    assert result.exit_code == 1
    assert result.output.startswith("Unknown")


def test_json():
    told = json.loads(run("--json", input=KILLED).output)
    assert (told["code"], told["line"], told["clues"]["signal"]) == ("STK801", 1, "Segmentation fault")
    assert json.loads(run("--json", input="nothing").output)["recognised"] is False


@pytest.mark.parametrize("word", ["STK801", "stk801", "worker-crashed", "worker_crashed"])
def test_the_page_of_a_code(word):
    result = run(word)
    assert result.exit_code == 0
    assert result.output.startswith("STK801 worker-crashed: ")
    for heading in ("What it finds", "Why it hurts", "Example", "Fix", "With stoker's loader"):
        assert f"\n{heading}\n" in result.output


def test_several_codes():
    result = run("STK801", "STK201")
    assert result.exit_code == 0
    assert "STK801 worker-crashed" in result.output
    assert "STK201 small-shm" in result.output
    told = json.loads(run("--json", "STK801", "STK201").output)
    assert (told["format"], told["version"]) == ("stoker-codes", 1)
    assert [each["code"] for each in told["codes"]] == ["STK801", "STK201"]
    assert json.loads(run("--json", "STK801").output)["codes"][0]["sections"]["Fix"]


@pytest.mark.parametrize("code", CODES)
def test_every_code_of_a_verdict_is_known(code):
    result = run(code)
    assert result.exit_code == 0
    assert CODES[code].rstrip(".") in " ".join(result.output.split()).replace("`", "")
    assert "Fix" in result.output
    assert all(check_of(each) is not None for each in REMEDIES[code][1])
    told = json.loads(run("--json", code).output)["codes"][0]
    assert (told["code"], bool(told["advice"])) == (code, True)


@pytest.mark.parametrize("word", [*CAUSES, *DETAILS, "start_up", "head_of_line", "IO"])
def test_every_cause_in_a_verdicts_brackets_is_known(word):
    result = run(word)
    assert result.exit_code == 0
    assert result.output.startswith(word.lower().replace("_", "-"))
    assert "Fix" in result.output
    assert "](" not in result.output
    told = json.loads(run("--json", word).output)["codes"][0]
    assert (told["kind"], bool(told["advice"])) == ("cause", True)
    assert all(check_of(each) is not None for each in told["checks"])


def test_causes_can_be_pasted_as_they_are_printed():
    assert run("(starved,", "neighbours)").exit_code == 0
    assert set(CAUSES) >= {each.replace("_", "-") for each in schema.CAUSES} | {RECORDING}
    assert set(DETAILS) == set(TAKERS)


def test_the_guide_has_the_same_table():
    """docs/starving.md is where people read it."""
    guide = Path(stoker.__file__).parents[2] / "docs" / "starving.md"
    rows = [
        line
        for line in guide.read_text().splitlines()
        if line.startswith(tuple(f"| `{each}`" for each in CAUSES))
    ]
    assert rows == [each.row() for each in PAGES]


def test_every_code_in_the_sources_is_known():
    """Of errors, warnings, notes and verdicts: whatever stoker prints can be asked for."""
    sources = "\n".join(path.read_text() for path in Path(stoker.__file__).parent.rglob("*.py"))
    codes = set(re.findall(r"\bSTK[1-9]\d\d\b", sources))
    assert {each for each in codes if check_of(each) is None} == set()
    assert set(REMEDIES) == set(CODES)


def test_every_page_can_be_printed():
    for check in catalogue():
        assert run(check.code).exit_code == 0


def test_the_list():
    result = run("--list")
    assert result.exit_code == 0
    for code in (*(check.code for check in catalogue()), *CODES):
        assert code in result.output
    told = json.loads(run("--list", "--json").output)["codes"]
    assert len(told) == len(catalogue()) + len(CODES) + len(CAUSES) + len(verify_codes.CODES)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("STK81",), "STK801 worker-crashed"),
        (("worker-crash",), "STK801 worker-crashed"),
        (("nothing-like-it",), "--list"),
        (("no-such-file.log",), "cannot read no-such-file.log: No such file or directory"),
        ((KILLED * 9,), "A text is read from standard input"),
        (("x" * 5000,), "--list"),
        (("/dev/zero",), "/dev/zero is a device, which has no log"),
        (("STK801", "other.log"), "'other.log'"),
    ],
)
def test_misuse_ends_with_2(arguments, said):
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_a_terminal_without_an_argument_gets_help_and_does_not_hang(monkeypatch):
    monkeypatch.setattr("stoker.cli.explain._is_terminal", lambda: True)
    result = run()
    assert result.exit_code == 2
    assert "Usage:" in result.output


def test_a_folder_is_no_log(tmp_path):
    result = run(str(tmp_path))
    assert result.exit_code == 2
    assert "Is a directory" in result.output
