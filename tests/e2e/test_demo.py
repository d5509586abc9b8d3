"""``stoker demo`` as a newcomer has it: real acts, and Ctrl-C in the midst of one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stoker._tools.demo import runner
from stoker._tools.demo.act import ActContext
from stoker._tools.demo.acts import scaling
from tests.warm import environment


def test_ctrl_c_leaves_what_was_measured_and_nobody_behind(tmp_path: Path) -> None:
    """The gap is measured to its end; in the recorded run that comes behind it the command is told to stop."""
    arguments = ["demo", "--quick", "--only", "gap", "--only", "profile", "--record", "demo.json"]
    command = [sys.executable, "-m", "stoker", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, env=environment()
    ) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        told = ""
        while "A recorded run" not in told:
            line = job.stderr.readline()
            assert line, told
            told += line
        job.send_signal(signal.SIGINT)
        shown, rest = job.communicate(timeout=60)
    assert job.returncode == 130, told + rest
    assert "Traceback" not in rest
    assert shown.startswith("Interrupted: what was measured")
    assert shown.splitlines()[-2:] == ["To look at: stoker-report.html", "All that was measured: demo.json"]
    record = json.loads((tmp_path / "demo.json").read_text())
    gaps = record["acts"]["gap"]["result"]["gaps_ms"]
    assert all(len(each) >= 2 for each in gaps.values())
    assert record["acts"]["profile"]["failure"] == "interrupted"
    assert "Between epochs" in (tmp_path / "stoker-report.html").read_text()


def test_acts_measure_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scaling with one flavour and few workers, and a recorded run of both loaders, with next to no time."""
    from stoker._tools.demo import flavours

    monkeypatch.setattr(flavours, "MAKERS", {"sleep": flavours.MAKERS["sleep"]})
    monkeypatch.setattr(scaling, "_WINDOW_S", (0.02, 0.02))
    stage = ActContext(True, 1, str(tmp_path), lambda what, share: None, budget_s=60.0)
    result = scaling.run(stage)
    [flavour] = result["flavours"]
    assert [each["workers"] for each in flavour["points"]] == [0, 1, 2]
    assert scaling.lines(result)[0].startswith("2 workers to 0")
    assert all(each["torch"]["rates"] and each["stoker"]["rates"] for each in flavour["points"])

    act = runner.act("profile")
    result = act.run(replace(stage, budget_s=0.5))
    assert [each["label"] for each in result["runs"]] == ["torch", "stoker"]
    for each in result["runs"]:
        [loader] = each["record"]["loaders"]
        assert loader["engine"] == each["label"]
        assert loader["totals"]["steps"] == result["steps"]
        assert loader["steps"]["seq"]
