"""``stoker bench`` with comparisons made by hand: the screen, JSON, options, exit codes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

import stoker._tools.tune
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand
from stoker._tools.render.terminal import MOST_LINES
from stoker._tools.tune.comparison import Comparison, Lane
from stoker._tools.tune.forms import comparison
from stoker.cli.main import main
from stoker.errors import TargetError
from tests.unit.tuning.tunings import BEST, NOW, OTHER, point

FOUND = Comparison(
    target="train.py:loader",
    batch_size=64,
    lanes=(
        Lane(("torch's default", "yours"), point(NOW, 21.3, 1.0), 47.0),
        Lane(
            ("the usual advice",),
            point(Setting(4, engine="torch"), 0, 0, failure="RuntimeError: no room in /dev/shm"),
        ),
        Lane(("stoker tuned",), point(BEST, 1.25, 0.06), 800.0),
    ),
    verdict="stoker tuned is 17.00 times as fast as the best of the others, torch's default.",
    tuned_by="profile of 2026-11-16 16:40 UTC",
    alike=True,
    rounds=6,
    demand=Demand(12_000_000, 0, "step-ms"),
    spent_s=31.0,
    stopped="budget",
)


class Said:
    """What the bench is made to answer, and what it was asked."""

    answer: Comparison | BaseException = FOUND
    asked: dict[str, Any]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> type[Said]:
    def stand_in(target: object, **options: Any) -> Comparison:
        Said.asked = {"target": target, **options}
        options["progress"]("round 1: yours", 0.1)
        if isinstance(Said.answer, BaseException):
            raise Said.answer
        return Said.answer

    Said.answer = FOUND
    module = SimpleNamespace(bench=stand_in)
    monkeypatch.setitem(sys.modules, "stoker._tools.tune.bench", module)
    monkeypatch.setattr(stoker._tools.tune, "bench", module, raising=False)
    return Said


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


@pytest.mark.parametrize("width", [80, 100])
def test_a_screen_has_a_row_for_everyone(width: int) -> None:
    lines = comparison.render(FOUND, width).splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "torch's default, yours" in text
    assert "Failed: the usual advice: RuntimeError" in text
    assert "Both engines gave equal batches." in text
    assert "0.06 (0.04–0.09)" in text
    assert "stoker.DataLoader(dataset, batch_size=64, num_workers=3" in text


def test_what_is_wrong_is_said() -> None:
    different = comparison.render(
        replace(FOUND, alike=False, alike_text="batch 2 differs", stopped="interrupted")
    )
    assert "The engines gave different batches: batch 2 differs." in different
    assert "It was stopped before its time." in different
    assert "was not seen: it is a stream" in comparison.render(
        replace(FOUND, alike=None, alike_text="it is a stream")
    )
    lanes = (Lane(("stoker tuned",), point(OTHER, 0, 0, failure="it hangs")),)
    nothing = comparison.render(
        replace(FOUND, lanes=lanes, failure="it hangs", verdict="Nothing could be compared: it hangs.")
    )
    assert "Nothing could be compared" in nothing
    assert "Next" not in nothing
    assert comparison.render(replace(FOUND, lanes=()))


def test_json_has_all_lanes(said: type[Said], tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    told = json.loads(run("a:b", "--json", "--output", path).stdout)
    assert told == json.loads(path.read_text())
    assert told["format"] == "stoker-bench"
    assert [each["engine"] for each in told["lanes"]] == ["torch", "torch", "stoker"]
    assert told["lanes"][2]["arguments"]["num_workers"] == 3
    assert run("a:b", "--output", path).exit_code == 2
    assert run("a:b", "--output", path, "--force").exit_code == 0


def test_options_reach_the_bench(said: type[Said]) -> None:
    result = run(
        "a:b",
        "--step-ms",
        "10",
        "--budget",
        "9",
        "--tune-budget",
        "8",
        "--fresh",
        "--batch-size",
        "4",
        "--ranks",
        "2",
    )
    assert result.exit_code == 0
    assert result.stdout.startswith("Raced     train.py:loader")
    assert result.stderr == "[ 10%] round 1: yours\n"
    said.asked.pop("progress")
    assert said.asked == {
        "target": "a:b", "batch_size": 4, "step": None, "step_s": 0.01, "record": None, "accumulate": 1, "ranks": 2,
        "budget_s": 9.0, "tune_s": 8.0, "fresh": True,
    }  # fmt: skip


def test_exit_codes_say_how_it_ended(said: type[Said]) -> None:
    for arguments in ((), ("a:b", "--step-ms", "1", "--step", "a:f"), ("a:b", "--budget", "nan")):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
    said.answer = TargetError("a:b raised ValueError: no", "File a.py, line 3", "")
    result = run("a:b")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("stoker bench: a:b raised ValueError: no\n  File a.py, line 3\n")
    said.answer = replace(FOUND, failure="sample 3 raised", stopped="failed")
    assert run("a:b").exit_code == 1
    said.answer = replace(FOUND, stopped="interrupted")
    assert run("a:b").exit_code == 130
