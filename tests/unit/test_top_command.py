"""``stoker top`` as a command: what it prints, when it ends and with which code. What it shows is given."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stoker._record.run_page.page import PageReading
from stoker._record.run_page.summary import RecentSums, summary_of
from stoker._tools.top.live import live
from stoker._tools.top.processes import LoaderSeen, PoolSeen, ProcessScan, WorkerSeen
from stoker.cli import top
from tests.unit import records

SECOND = records.SECOND


def seen(pid: int, workers: int = 2, **words: int) -> LoaderSeen:
    """A loader whose consumer has been waiting for two seconds at second 100, for worker 1."""
    summary = summary_of(records.loader(name=f"of {pid}"), RecentSums(), workers=2, at_ns=98 * SECOND)
    reading = PageReading(pid, 1, words.get("asked_ns", 98 * SECOND), 97 * SECOND, 100, summary)
    rows = tuple(
        WorkerSeen(
            number, 500 + number, "fetch", 97 * SECOND, 1, workers - number, 0, 0, 40 + number, 0, 0, 1, None
        )
        for number in range(workers)
    )
    return LoaderSeen((1, pid), pid, "train.py", reading, (PoolSeen(pid, pid, 1, rows),))


class Stage:
    """Stands for the machine: scans that are given, and a clock that is not waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loaders: Sequence[LoaderSeen] = ()
        self.skipped: tuple[str, ...] = ()
        self.slept: list[float] = []
        self.looks = 1
        monkeypatch.setattr(top, "scan", self.scan)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def scan(self) -> ProcessScan:
        return ProcessScan(100 * SECOND, tuple(self.loaders), self.skipped)

    def sleep(self, number: float) -> None:
        """Ctrl-C comes after as many looks as were wanted."""
        self.slept.append(number)
        if len(self.slept) > self.looks:
            raise KeyboardInterrupt

    def run(self, *arguments: str) -> Result:
        self.slept.clear()
        return CliRunner().invoke(top.command, list(arguments))


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_nothing_runs(stage: Stage) -> None:
    stage.skipped = ("process 1: Permission denied",)
    result = stage.run("--once")
    assert result.exit_code == 1
    assert result.output == (
        "no loader of this user's processes is running\n"
        "torch's own loaders are seen when their script was started with `stoker profile train.py`, "
        "stoker's always: `stoker run train.py` puts them in their place\n"
        "1 processes could not be looked into; -v says which and why\n"
    )
    assert stage.run("--once", "-v").output.endswith("skipped: process 1: Permission denied\n")
    result = stage.run("--once", "--json")
    assert result.exit_code == 1
    assert json.loads(result.output)["loaders"] == []


def test_one_look_in_words_and_in_json(stage: Stage) -> None:
    stage.loaders = [seen(40), seen(41)]
    result = stage.run("--once")
    assert result.exit_code == 0
    assert "train.py (40)  of 40 (train.py:31), process  epoch 1  step 100" in result.output
    assert (
        "waiting for 2.0 s: worker 1 is on index 41 of batch 1 (fetch), which it began 3.0 s ago"
        in result.output
    )
    document = json.loads(stage.run("--once", "--json").output)
    assert [loader["pid"] for loader in document["loaders"]] == [40, 41]
    assert document["loaders"][0]["waiting_s"] == 2.0
    assert [worker["awaited"] for worker in document["loaders"][0]["workers"]] == [False, True]


def test_lines_follow_each_other_until_ctrl_c(stage: Stage) -> None:
    stage.loaders, stage.looks = [seen(40)], 3
    result = stage.run("--interval", "7")
    assert result.exit_code == 0
    assert stage.slept[1:] == [7.0] * 3
    assert result.output.count("train.py (40)") == 3
    lines = stage.run("--json").output.splitlines()
    assert [len(json.loads(line)["loaders"]) for line in lines] == [1, 1, 1]


def test_waiting_for_somebody_to_begin(stage: Stage) -> None:
    stage.looks = 2
    result = stage.run()
    assert result.exit_code == 0
    assert result.output.count("no loader of this user's processes is running") == 2


def test_one_process_of_many(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    me = os.getpid()
    stage.loaders, stage.looks = [seen(1 << 25), seen(me)], 1
    document = json.loads(stage.run("--once", "--json", "--pid", str(me)).output)
    assert [loader["pid"] for loader in document["loaders"]] == [me]
    result = stage.run("--once", "--pid", str(1 << 25))
    assert result.exit_code == 1
    assert f"there is no process {1 << 25}" in result.output


def test_without_proc_it_says_so(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    result = stage.run("--once")
    assert result.exit_code == 1
    assert "which this system does not have" in result.output


def test_it_ends_with_the_process_that_was_asked_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    me = os.getpid()
    stage.loaders, stage.looks = [seen(me)], 100
    there = iter([True, True, False])
    monkeypatch.setattr(os.path, "exists", lambda path: next(there) if path == f"/proc/{me}" else True)
    result = stage.run("--pid", str(me))
    assert result.exit_code == 0
    assert result.output.count("train.py (") == 2


def test_many_workers_fit_the_screen() -> None:
    loaders = [seen(40, workers=192), seen(41, workers=192)]
    scan = ProcessScan(100 * SECOND, tuple(loaders))
    moment: Any = top._Moment(scan, live(scan))
    lines = top._fitted(moment, False, 200, 40)
    assert 30 <= len(lines) <= 40
    texts = [line.text for line in lines]
    assert len([text for text in texts if text.startswith("  and ")]) == 2
    assert len([text for text in texts if text.startswith("  waiting for")]) == 2
    assert len(top._fitted(moment, True, 200, 40)) > 384
    assert len(top._fitted(moment, False, 200, 5)) > 5, "what matters is not left out; the screen cuts it off"
    narrow = top._fitted(moment, False, 60, 40)
    assert len(narrow) <= 40
    assert all(len(line.text) <= 60 for line in narrow if line.kind not in ("head", "worker"))
