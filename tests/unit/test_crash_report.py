"""Crash reports: how a worker ended, the likely cause, whether it was an OOM kill, and the stack on request."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from stoker._host import cgroup_memory
from stoker._host.cgroup_memory import CgroupMemory, OomKills
from stoker._runtime.executors.process import crash_report
from stoker._runtime.executors.process.crash_report import OomDetector, cause_of, details, exit_text
from stoker._runtime.protocol import stacks
from stoker._runtime.protocol.status_page import StatusPage

GIB = 1 << 30


class Counters:
    """The kernel's counters, in our hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cgroup: int | None = 0, machine: int = 0) -> None:
        self.kills = OomKills(cgroup, machine)
        self.facts = CgroupMemory(2 * GIB, 3 * GIB // 2, cgroup)
        monkeypatch.setattr(cgroup_memory, "oom_kills", lambda: self.kills)
        monkeypatch.setattr(cgroup_memory, "cgroup_memory", lambda: self.facts)
        monkeypatch.setattr(cgroup_memory, "available_bytes", lambda: 5 * GIB)


def ended(code: int | None) -> Any:
    return SimpleNamespace(pid=4711, exitcode=code)


def test_an_oom_kill_in_the_cgroup_is_reported_with_limit_use_and_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counters = Counters(monkeypatch, cgroup=4, machine=10)
    judge = OomDetector()
    counters.kills = OomKills(5, 11)
    told = judge.kill_cause(0, 300 << 20)
    assert told.startswith(
        "out of memory: the kernel's OOM killer struck in this cgroup (limit 2.0 GiB, 1.5 GiB in use now)"
    )
    assert "the worker had 300 MiB at most" in told
    assert "fewer workers" in told


def test_each_oom_kill_explains_one_death(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers are killed before the first death is seen; a third is killed by a person."""
    counters = Counters(monkeypatch)
    judge = OomDetector()
    counters.kills = OomKills(2, 2)
    told = [judge.kill_cause(0, 0) for _ in range(3)]
    assert [text.startswith("out of memory") for text in told] == [True, True, False]
    counters.kills = OomKills(3, 3)
    assert judge.kill_cause(0, 0).startswith("out of memory")


def test_kills_from_before_the_workers_started_explain_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    Counters(monkeypatch, cgroup=9, machine=40)
    told = OomDetector().kill_cause(GIB, 0)
    assert told.startswith("somebody sent it SIGKILL")
    assert "the kernel counts no OOM kill; the worker last had 1.0 GiB" in told


def test_an_oom_kill_of_a_stranger_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's counter has the kills of every container in it."""
    counters = Counters(monkeypatch, cgroup=0, machine=0)
    judge = OomDetector()
    counters.kills = OomKills(0, 3)
    told = judge.kill_cause(0, 0)
    assert told.startswith("somebody sent it SIGKILL")
    assert "no OOM kill in this cgroup, though elsewhere on this machine" in told


def test_where_the_cgroup_tells_nothing_the_machine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = Counters(monkeypatch, cgroup=None, machine=7)
    judge = OomDetector()
    assert judge.kill_cause(0, 0).startswith("somebody sent it SIGKILL")
    counters.kills = OomKills(None, 8)
    told = judge.kill_cause(0, 0)
    assert told.startswith(
        "out of memory: the kernel's OOM killer struck (the machine has 5.0 GiB available now)"
    )


def test_a_cgroup_without_a_limit_is_reported_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = Counters(monkeypatch)
    judge = OomDetector()
    counters.kills, counters.facts = OomKills(1, 1), CgroupMemory(None, None, 1)
    assert "struck in this cgroup. Use fewer" in judge.kill_cause(0, 0)


@pytest.mark.parametrize(
    "number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGTERM, signal.SIGKILL]
)
def test_a_signal_in_torchs_words_with_its_name(number: signal.Signals) -> None:
    told = exit_text(ended(-number))
    assert re.fullmatch(
        rf"DataLoader worker \(pid 4711\) is killed by signal: [\w ]+ \({number.name}\)\.", told
    )
    assert cause_of(ended(-number), OomDetector(), 0, 0)


def test_a_signal_without_a_name_is_reported_by_its_number() -> None:
    assert "signal 50" in exit_text(ended(-50))
    assert cause_of(ended(-50), OomDetector(), 0, 0) == ""


@pytest.mark.parametrize("code", [0, 1, 3])
def test_an_exit_code_in_torchs_words(code: int) -> None:
    told = exit_text(ended(code))
    assert told.startswith(f"DataLoader worker (pid(s) 4711) exited unexpectedly with exit code {code}")
    assert "sys.exit" in cause_of(ended(code), OomDetector(), 0, 0)


def test_an_exit_status_that_somebody_else_collected() -> None:
    assert "exited unexpectedly" in exit_text(ended(None))
    assert "collected its exit status" in cause_of(ended(None), OomDetector(), 0, 0)


def test_the_lines_below_the_exit_text() -> None:
    assert details("", []) == ""
    assert (
        details("no luck", ["one", "two"])
        == "\n  likely cause: no luck\n  its Python stack:\n    one\n    two"
    )


def test_a_process_that_is_gone_is_in_no_state() -> None:
    child = multiprocessing.get_context("fork").Process(target=os._exit, args=(0,))
    child.start()
    child.join()
    assert child.pid is not None
    assert crash_report.state_of(child.pid) == ""
    child.close()


@pytest.fixture
def page() -> Iterator[StatusPage]:
    page = StatusPage.create()
    yield page
    page.close()


class Worker:
    """A forked process that waits in a function of ours, with its pidfd."""

    def __init__(self, target: Any, *args: Any) -> None:
        ready, said = os.pipe()
        self._process = multiprocessing.get_context("fork").Process(target=target, args=(said, *args))
        self._process.start()
        os.close(said)
        os.read(ready, 1)
        os.close(ready)
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._process.join()
        self._process.close()
        os.close(self.pidfd)


def _armed_and_waiting(said: int, status_fd: int, worker: int) -> None:
    stacks.StackFile(status_fd, worker)
    os.write(said, b"x")
    while True:  # a signal that was handled ends one pause
        signal.pause()


def _deaf(said: int) -> None:
    signal.signal(stacks.SIGNAL, signal.SIG_IGN)
    os.write(said, b"x")
    signal.pause()


def test_a_waiting_worker_tells_its_stack_again_and_again(page: StatusPage) -> None:
    with Worker(_armed_and_waiting, page.fd, 2) as worker:
        for _ in range(3):
            found = crash_report.stack_of(worker.pidfd, page.fd, 2)
            assert "_armed_and_waiting" in found[0]
            assert sum("_armed_and_waiting" in line for line in found) == 1
    assert stacks.crash_stack(stacks.read(page.fd, 2)) == []


def test_a_stopped_worker_answers_nothing_and_is_reported_as_stopped(
    page: StatusPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash_report, "_ANSWER_S", 0.1)
    with Worker(_armed_and_waiting, page.fd, 0) as worker:
        os.kill(worker.pid, signal.SIGSTOP)
        os.waitpid(worker.pid, os.WUNTRACED)
        assert crash_report.stack_of(worker.pidfd, page.fd, 0) == []
        assert (
            crash_report.state_of(worker.pid) == f"it is stopped (kill -CONT {worker.pid} lets it continue)"
        )


def test_a_worker_that_ignores_the_signal_leaves_nothing(
    page: StatusPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash_report, "_ANSWER_S", 0.1)
    with Worker(_deaf) as worker:
        assert crash_report.stack_of(worker.pidfd, page.fd, 0) == []
        assert crash_report.state_of(worker.pid) == ""


def test_a_dead_worker_is_not_waited_for(page: StatusPage) -> None:
    with Worker(_armed_and_waiting, page.fd, 0) as worker:
        os.kill(worker.pid, signal.SIGKILL)
        assert crash_report.stack_of(worker.pidfd, page.fd, 0) == []


def test_a_full_region_is_not_written_past(page: StatusPage) -> None:
    with Worker(_armed_and_waiting, page.fd, 0) as worker:
        os.pwrite(page.fd, b"x" * (1 << 19), 1 << 20)
        assert crash_report.stack_of(worker.pidfd, page.fd, 0) == []
        os.kill(worker.pid, 0)
    assert set(stacks.read(page.fd, 0)) == {"x"}
