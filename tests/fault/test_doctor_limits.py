"""A dataset that hangs, crashes, eats memory, prints or forks while the doctor examines it: a finding, and nothing left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data._utils.collate import default_collate_fn_map

import stoker
from stoker._runtime.worker import collation
from stoker._tools.doctor import probes
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.facts import Missing
from stoker._tools.sandbox.client import SandboxClient
from stoker._tools.sandbox.process_tree import ProcessTree, is_tracker
from stoker.errors import TargetError
from tests import warm

GONE_S = 10.0
"""Bound on a wait that ends at once when all is well."""


class Rows(Dataset[Any]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3), index


class Deadly(Rows):
    """Kills in two ways, prints megabytes, and leaves a child behind that is in a session of its own."""

    def __init__(self, pids: Path) -> None:
        self.pids = pids

    def __getitem__(self, index: int) -> Any:
        print("x" * 100_000)
        if index == 1:
            child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
            with self.pids.open("a") as file:
                file.write(f"{child.pid}\n")
        if index == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        if index == 9:
            os._exit(3)
        return super().__getitem__(index)


class Hanging(Rows):
    def __getitem__(self, index: int) -> Any:
        if index == 5:
            signal.pause()
        return super().__getitem__(index)


class Hungry(Rows):
    def __getitem__(self, index: int) -> Any:
        eaten = []
        while True:
            eaten.append(bytes(bytearray(16 << 20)))


class Strange(Rows):
    def __getitem__(self, index: int) -> Any:
        odd = {3: None, 7: (torch.zeros(4), 7), 8: (torch.zeros(3).long(), 8)}
        if index == 4:
            raise FileNotFoundError(2, "no such file", "a.png")
        return odd[index] if index in odd else super().__getitem__(index)


class Mute(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("it has no text")


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield torch.zeros(3)
        yield torch.zeros(3)
        raise Mute


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples have a second: what hangs here hangs for ever."""
    monkeypatch.setattr(probes, "PLANS", (probes.Plan("target", samples=False), probes.Plan("samples", 1.0)))


def examined(target: object, *select: str, **options: Any) -> Diagnosis:
    return stoker.doctor(target, select=select or ("STK4",), **options)


def found(diagnosis: Diagnosis) -> list[tuple[str, str | None]]:
    return [(each.code, each.where) for each in diagnosis.findings]


def gone(pid: int) -> bool:
    """Whether a process has ended; waits for it."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], GONE_S)[0])
    finally:
        os.close(fd)


def test_samples_that_kill_are_named_and_the_others_examined(
    hasty: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pids = tmp_path / "pids"
    diagnosis = examined(Deadly(pids))
    assert found(diagnosis) == [("STK412", "dataset[2]"), ("STK412", "dataset[9]")]
    assert "killed by SIGSEGV in __getitem__ (test_doctor_limits.py:" in diagnosis.findings[0].evidence
    assert "exit code 3" in diagnosis.findings[1].evidence
    assert "STK401" in diagnosis.passed
    assert [each.index for each in diagnosis.facts["samples"].probe_failures] == [2, 9]
    assert all(gone(int(pid)) for pid in pids.read_text().split())
    assert capfd.readouterr() == ("", "")


PROBING = """
import os, signal, sys
if os.fork() == 0:
    os.setpgid(0, 0)
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.close(theirs)
        os.set_inheritable(ours, True)
        tidy = "import os, sys; os.read(int(sys.argv[1]), 1); open(sys.argv[2], 'w').close()"
        os.execl(sys.executable, "python", "-ISc", tidy, str(ours), sys.argv[1], "multiprocessing." + "resource_tracker")
    os.close(ours)
    os.write(1, b"!")
signal.pause()
"""


def test_trackers_below_a_probe_that_is_cut_short_may_tidy_up_first(tmp_path: Path) -> None:
    sandbox = subprocess.Popen(
        [sys.executable, "-ISc", PROBING, str(tmp_path / "tidy")],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with sandbox:
        assert sandbox.stdout is not None
        assert sandbox.stdout.read(1) == b"!"
        tree = ProcessTree(sandbox.pid)
        while not any(map(is_tracker, tree.members(sandbox.pid))):  # it is still about to become one
            os.sched_yield()
        tree.kill(sandbox.pid)
    assert (tmp_path / "tidy").exists()


def test_a_sample_that_hangs_is_named_with_its_line_and_one_that_eats_memory_is_stopped(hasty: None) -> None:
    hangs = examined(Hanging())
    assert found(hangs) == [("STK411", "dataset[5]")]
    assert "it stands in __getitem__ (test_doctor_limits.py:" in hangs.findings[0].evidence
    assert "STK404" in hangs.passed
    eats = examined(Hungry(), memory_limit_bytes=64 << 20)
    assert found(eats) == [("STK412", "dataset[0]"), ("STK412", "dataset[1]")]
    assert "of the 64 MiB it may take" in eats.findings[0].evidence
    assert isinstance(eats.facts["samples"], Missing)
    assert "STK404" not in eats.passed


def test_a_sandbox_that_hangs_itself_is_ended() -> None:
    from stoker._tools.sandbox.target import subject_of

    sandbox = SandboxClient(subject_of(Hanging()), memory_limit_bytes=None)
    try:
        answer = sandbox.probe("stoker._tools.doctor.probes.samples", limit_s=0.5, in_fork=False)
        assert answer.probe_failure is not None
        assert (answer.probe_failure.what, answer.probe_failure.index, sandbox.alive) == ("hung", 5, False)
    finally:
        sandbox.close()


def test_strange_samples_are_told_and_a_round_trip_comes_back(
    hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where stoker's threads have changed torch's collation, which promotes mixed types then."""
    monkeypatch.setitem(default_collate_fn_map, torch.Tensor, collation.collate_tensor)
    told = examined(DataLoader(Strange(), batch_size=10, num_workers=2))
    assert found(told) == [
        ("STK401", "sample[0]"),
        ("STK402", "dataset[3]"),
        ("STK403", "sample[0]"),
        ("STK404", "dataset[4]"),
    ]
    stream = examined(Stream(), "STK404")
    assert found(stream) == [("STK404", "item 2 of the stream")]
    assert "raised Mute: (its text cannot be had: __str__ raised RuntimeError)" in stream.findings[0].evidence


def test_ctrl_c_ends_it_with_what_was_found_until_then(hasty: None) -> None:
    def stop(name: str, done: int, total: int) -> None:
        if name == "samples":
            raise KeyboardInterrupt

    diagnosis = examined(Strange(), progress=stop)
    assert diagnosis.interrupted
    assert diagnosis.facts["target"].length == 100
    assert {each.reason for each in diagnosis.skipped} == {"interrupted"}


SCRIPT = """
import sys
from torch.utils.data import DataLoader
from tests.fault.test_doctor_limits import Rows

print("printed while it was imported")
def train():
    return DataLoader(Rows(), batch_size=10, num_workers=2)
def broken():
    raise KeyError("no such split")
if __name__ == "__main__" or sys.argv[1:]:
    sys.exit("it was run as a script")
"""


def test_a_target_in_a_file_is_loaded_by_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(part for part in (*sys.path, str(warm.ROOT)) if part))
    path = tmp_path / "training.py"
    path.write_text(SCRIPT)
    diagnosis = examined(f"{path}:train", "STK401", "STK409")
    told = diagnosis.facts["target"]
    assert (told.loader.site, told.loader.line, told.loader.file) == ("training.py:8", 8, str(path))
    assert diagnosis.passed == ("STK401", "STK409")
    assert diagnosis.facts["round_trip"].trips[0].outcome == "arrived"
    with pytest.raises(TargetError, match=r"training.py:broken raised: KeyError: 'no such split'") as raised:
        examined(f"{path}:broken")
    assert "training.py" in raised.value.stack
    assert raised.value.output == "printed while it was imported\n"
    assert capfd.readouterr() == ("", "")


KILLED = """
import os, signal, sys
import stoker
from tests.fault.test_doctor_limits import Rows

class Waiting(Rows):
    def __getitem__(self, index):
        child = os.fork()
        os.write({fd}, f"{{os.getpid()}}\\n".encode())
        signal.pause()

stoker.doctor(Waiting(), select=["STK404"])
"""


def test_a_doctor_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    fifo = tmp_path / "pids"
    os.mkfifo(fifo)
    read_fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        source = KILLED.format(fd=f"os.open({str(fifo)!r}, os.O_WRONLY)")
        with warm.Popen(["-c", source], cwd=warm.ROOT) as doctor:
            said = b""
            deadline = time.monotonic() + GONE_S
            while said.count(b"\n") < 2 and time.monotonic() < deadline:
                if select.select([read_fd], [], [], 0.1)[0]:
                    said += os.read(read_fd, 4096)
            doctor.kill()
            pids = [int(line) for line in said.split()]
            assert len(pids) == 2
            assert all(gone(pid) for pid in pids)
    finally:
        os.close(read_fd)
