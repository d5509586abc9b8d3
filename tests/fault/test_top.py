"""``stoker top`` and a training script that hangs: two processes that know nothing of each other."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stoker._record.run_page.page import RunPage
from stoker._runtime.protocol import status_page
from stoker._tools.top import processes
from stoker._tools.top.processes import scan
from stoker.cli.top import command
from stoker.testing import Gate
from tests import warm

SCRIPT = """
import sys, time
from stoker import DataLoader
from stoker.testing import pass_through

class Rows:
    def __len__(self):
        return 400

    def __getitem__(self, index):
        time.sleep(0.0001)
        if index == 123:
            pass_through(sys.argv[1])
        return index

loader = DataLoader(Rows(), batch_size=4, num_workers=2, multiprocessing_context="fork", executor=sys.argv[2], name="train")
print(sum(len(batch) for batch in loader))
"""

ENOUGH_S = 60.0


def look(pid: int) -> dict[str, Any] | None:
    """The one loader of a process, as a script would read it."""
    result = CliRunner().invoke(command, ["--once", "--json", "--pid", str(pid)])
    found = json.loads(result.output)["loaders"]
    assert len(found) <= 1, "a loader and its pool are one"
    assert result.exit_code == (0 if found else 1)
    return found[0] if found else None


def wait_for(pid: int, right: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Look again and again, until it is as it will be in the end."""
    deadline_s = time.monotonic() + ENOUGH_S
    while True:
        found = look(pid)
        if found is not None and right(found):
            return found
        assert time.monotonic() < deadline_s, found


def test_a_hanging_script_is_seen_from_outside(gate: Gate, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    with warm.Popen([str(script), gate.path, "process"], stdout=subprocess.PIPE) as job:
        try:
            told = wait_for(job.pid, lambda loader: loader["cause"] == "io" and loader["stall"] > 0.5)
            assert (told["name"], told["dataset"], told["executor"]) == ("train", "__main__.Rows", "process")
            assert told["num_workers"] == len(told["workers"]) == 2
            [awaited] = [worker for worker in told["workers"] if worker["awaited"]]
            assert (awaited["index"], awaited["batch"], awaited["phase"]) == (123, 30, "fetch")
            assert awaited["off"] > 0.5
            assert told["steps"] == 30
            assert told["waiting_s"] > 0
            assert awaited["pid"] != job.pid
            assert look(awaited["pid"]) is not None, "a worker's pid leads to its loader as well"
            screen = on_a_terminal(job.pid)
            assert "index 123 of batch 30" in screen.replace("\r\n    ", " ")
        finally:
            gate.open()
        assert job.stdout is not None
        assert job.stdout.read() == "400\n"
        assert job.wait() == 0
    assert job.pid not in {loader.pid for loader in scan().loaders}


def test_threads_are_seen_too(gate: Gate, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    with warm.Popen([str(script), gate.path, "thread"], stdout=subprocess.PIPE) as job:
        try:
            told = wait_for(job.pid, lambda loader: loader["cause"] == "io" and loader["stall"] > 0.5)
            assert (told["executor"], told["num_workers"], len(told["workers"])) == ("thread", 2, 2)
            [awaited] = [worker for worker in told["workers"] if worker["awaited"]]
            assert (awaited["index"], awaited["batch"], awaited["phase"]) == (123, 30, "fetch")
            assert os.path.exists(f"/proc/{job.pid}/task/{awaited['pid']}")
        finally:
            gate.open()
        assert job.wait() == 0


def on_a_terminal(pid: int) -> str:
    """What ``stoker top`` draws, up to the line about the wait; Ctrl-C ends it well."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    arguments = [sys.executable, "-m", "stoker", "top", "--pid", str(pid), "--interval", "0.1"]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment["TERM"] = "xterm"
    process = subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    drawn = b""
    try:
        while b"waiting for" not in drawn or b"awaited" not in drawn:
            assert select.select([ours], [], [], ENOUGH_S)[0], drawn
            drawn += os.read(ours, 1 << 16)
        process.send_signal(signal.SIGINT)
        while select.select([ours], [], [], ENOUGH_S)[0]:
            try:
                drawn += os.read(ours, 1 << 16)
            except OSError:  # nobody has the other end any more
                break
        assert process.wait(ENOUGH_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"Traceback" not in drawn
    return drawn.decode()


def test_the_page_of_a_dead_owner_that_somebody_still_has_is_not_shown() -> None:
    read_fd, write_fd = os.pipe()
    owner = os.fork()
    if owner == 0:
        page = RunPage.create()
        os.write(write_fd, str(page.inode).encode())
        while True:
            signal.pause()
    inode = int(os.read(read_fd, 64))
    folder = f"/proc/{owner}/fd"
    held = [
        os.open(f"{folder}/{fd}", os.O_RDONLY)
        for fd in os.listdir(folder)
        if os.stat(f"{folder}/{fd}").st_ino == inode
    ]
    try:
        assert [loader.pid for loader in scan().loaders if loader.key[1] == inode] == [owner]
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)
        assert [loader.pid for loader in scan().loaders if loader.key[1] == inode] == []
    finally:
        for fd in (read_fd, write_fd, *held):
            os.close(fd)


@pytest.mark.parametrize("cut", [1, 8, status_page.ROW_BYTES - 1])
def test_a_page_that_ends_within_a_row_shows_the_whole_ones(cut: int) -> None:
    fd = os.memfd_create("page")
    try:
        words = memoryview(bytearray(4 * status_page.ROW_BYTES)).cast("q")
        words[status_page.FORMAT], words[status_page.PARENT_PID] = status_page.VERSION, os.getpid()
        for row in (1, 2, 3):
            words[row * status_page.WORDS + status_page.PID] = os.getpid()
        os.write(fd, words.tobytes()[: 4 * status_page.ROW_BYTES - cut])
        pool = processes._pool(fd, [os.getpid()], "/proc")
        assert pool is not None
        assert [each.worker for each in pool.workers] == [0, 1]
    finally:
        os.close(fd)


def test_a_worker_of_another_host_has_no_times_of_a_process_here() -> None:
    """Its pid is that host's; the process that has it here is somebody else's."""
    fd = os.memfd_create("page")
    try:
        words = memoryview(bytearray(3 * status_page.ROW_BYTES)).cast("q")
        words[status_page.FORMAT], words[status_page.PARENT_PID] = status_page.VERSION, os.getpid()
        words[status_page.WORDS + status_page.PID] = os.getppid()
        words[2 * status_page.WORDS + status_page.PID] = os.getpid()
        os.write(fd, words.tobytes())
        pool = processes._pool(fd, [os.getpid()], "/proc")
        assert pool is not None
        assert [each.meter is None for each in pool.workers] == [True, False]
    finally:
        os.close(fd)
