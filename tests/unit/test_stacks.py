"""Stacks that workers leave in the status page's file: what is kept of a dump, and that regions do not mix."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from stoker._host.code_location import PACKAGE
from stoker._runtime.protocol import stacks
from stoker._runtime.protocol.status_page import StatusPage

OURS = os.path.join(PACKAGE, "_runtime", "worker", "")
HUNG = f"""Thread 0x00007f01 (most recent call first):
  File "/usr/lib/threading.py", line 320 in wait
  File "/home/me/pool.py", line 9 in idle

Current thread 0x00007f02 (most recent call first):
  File "/home/me/data.py", line 12 in decode
  File "/home/me/data.py", line 30 in __getitem__
  File "{OURS}batch_maker.py", line 182 in _fetch_singly
  File "{OURS}batch_maker.py", line 95 in make
  File "{OURS}main.py", line 207 in _work
  File "{OURS}main.py", line 96 in run
  File "/usr/lib/multiprocessing/process.py", line 108 in run
"""
CRASH = "Fatal Python error: Segmentation fault\n\n"


@pytest.fixture
def page() -> Iterator[StatusPage]:
    page = StatusPage.create()
    yield page
    page.close()


def test_of_a_dump_the_users_frames_of_the_thread_it_concerns() -> None:
    assert stacks.shortened(HUNG) == [
        'File "/home/me/data.py", line 12 in decode',
        'File "/home/me/data.py", line 30 in __getitem__',
    ]


def test_threads_after_the_one_concerned_are_not_mixed_in() -> None:
    frames = 'Current thread 0x1 (most recent call first):\n  File "a.py", line 1 in f\nThread 0x2 (most recent call first):\n'
    assert stacks.shortened(frames + '  File "b.py", line 2 in g\n') == ['File "a.py", line 1 in f']


def test_our_own_frames_between_the_users_stay() -> None:
    """A collate_fn that calls torch's collation comes through our code; a crash there is not hidden."""
    dump = (
        "Current thread 0x1 (most recent call first):\n"
        f'  File "{OURS}collate.py", line 7 in stack\n'
        '  File "/home/me/data.py", line 3 in collate\n'
        f'  File "{OURS}batch_maker.py", line 265 in collate_samples\n'
        f'  File "{OURS}main.py", line 96 in run\n'
    )
    assert [line.rpartition(" ")[2] for line in stacks.shortened(dump)] == ["stack", "collate"]


def test_a_stack_that_is_all_ours_is_shown_whole() -> None:
    dump = f'Current thread 0x1 (most recent call first):\n  File "{OURS}seeding.py", line 7 in seed_all\n'
    assert stacks.shortened(dump) == [f'File "{OURS}seeding.py", line 7 in seed_all']


def test_a_users_project_may_be_called_stoker() -> None:
    dump = (
        'Current thread 0x1 (most recent call first):\n  File "/work/stoker/main.py", line 7 in __getitem__\n'
    )
    assert stacks.shortened(dump) == ['File "/work/stoker/main.py", line 7 in __getitem__']


def test_a_thread_that_python_does_not_know_leaves_the_main_threads_stack() -> None:
    dump = HUNG.replace("Current thread", "Thread")
    assert stacks.crash_stack(CRASH + dump) == stacks.shortened(HUNG)


def test_a_deep_stack_keeps_both_ends() -> None:
    lines = "".join(f'  File "a.py", line {number} in f\n' for number in range(100))
    found = stacks.shortened("Current thread 0x1 (most recent call first):\n" + lines + "  ...\n")
    assert len(found) == 17
    assert found[0].endswith("line 0 in f")
    assert found[8] == "..."


def test_names_of_extension_modules_are_left_out() -> None:
    dump = CRASH + HUNG + "\nExtension modules: numpy.core._multiarray_umath, torch._C (total: 2)\n"
    assert stacks.crash_stack(dump) == stacks.shortened(HUNG)


def test_the_c_stack_comes_after_the_python_stack() -> None:
    """Python 3.14 writes one."""
    dump = (
        CRASH + "Current thread 0x1 (most recent call first):\n"
        '  File "a.py", line 1 in f\n\nCurrent thread\'s C stack trace (most recent call first):\n'
        "  Binary file libjpeg.so, at decode+0x1f [0x7f]\n"
    )
    assert stacks.crash_stack(dump) == [
        'File "a.py", line 1 in f',
        "Binary file libjpeg.so, at decode+0x1f [0x7f]",
    ]


@pytest.mark.parametrize("text", ["", HUNG, "noise", "Current thread 0x"])
def test_a_worker_asked_for_its_stack_left_no_crash_stack(text: str) -> None:
    assert stacks.crash_stack(text) == []


def test_the_crash_is_reported_and_not_earlier_stacks() -> None:
    asked = HUNG.replace("decode", "earlier")
    assert stacks.crash_stack(asked + CRASH + HUNG) == stacks.shortened(HUNG)


@pytest.mark.parametrize(
    "text", ["Fatal Python error", CRASH, CRASH + "Current thr", CRASH + "Current thread 0x00"]
)
def test_a_crash_that_was_cut_off_is_no_error(text: str) -> None:
    assert stacks.crash_stack(text) == []


def test_what_is_left_is_read_in_its_own_region_only(page: StatusPage) -> None:
    for worker in (0, 1, 4094):
        _leave(page, worker, f"Traceback of {worker}")
    assert stacks.crash_stack(stacks.read(page.fd, 1)) == ["Traceback of 1"]
    assert stacks.crash_stack(stacks.read(page.fd, 4094)) == ["Traceback of 4094"]
    assert stacks.read(page.fd, 2) == ""
    assert page.claim(0) is None


def test_a_successor_starts_with_an_empty_region(page: StatusPage) -> None:
    _leave(page, 1, "a long traceback of the first")
    _leave(page, 2, "of a neighbour")
    stacks.forget(page.fd, 1)
    assert stacks.read(page.fd, 1) == ""
    _leave(page, 1, "short")
    assert stacks.crash_stack(stacks.read(page.fd, 1)) == ["short"]
    assert stacks.crash_stack(stacks.read(page.fd, 2)) == ["of a neighbour"]


def test_forgetting_where_nothing_was_left_writes_nothing(page: StatusPage) -> None:
    before = os.fstat(page.fd).st_size
    stacks.forget(page.fd, 3)
    assert os.fstat(page.fd).st_size == before


@pytest.mark.parametrize("text", ["tränen \U0001f62d", "lone surrogate \udcff", "nul \0 inside"])
def test_any_text_can_be_left(page: StatusPage, text: str) -> None:
    _leave(page, 0, f"{text}\nEnd: of it")
    assert stacks.crash_stack(stacks.read(page.fd, 0))[-1] == "End: of it"


def test_a_text_that_is_too_long_keeps_its_end(page: StatusPage) -> None:
    _leave(page, 0, "ü" * (3 << 20) + "\nEnd: of it")
    _leave(page, 1, "neighbour")
    assert stacks.crash_stack(stacks.read(page.fd, 0))[-1] == "End: of it"
    assert stacks.crash_stack(stacks.read(page.fd, 1)) == ["neighbour"]
    stacks.forget(page.fd, 0)
    assert stacks.read(page.fd, 0) == ""


def test_a_long_traceback_keeps_its_head_and_its_end(page: StatusPage) -> None:
    _leave(page, 0, "Traceback (most recent call last):\n" + "  frame\n" * 500 + "SystemExit: 3")
    found = stacks.crash_stack(stacks.read(page.fd, 0))
    assert found[:2] == ["Traceback (most recent call last):", "  ..."]
    assert found[-1] == "SystemExit: 3"
    assert len(found) < 40


def test_the_signal_is_one_that_users_and_libraries_leave_alone() -> None:
    assert stacks.SIGNAL not in (
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGRTMIN,
        signal.SIGRTMIN + 1,
        signal.SIGRTMIN + 2,
    )
    assert signal.SIGRTMIN < stacks.SIGNAL < signal.SIGRTMAX


def _leave(page: StatusPage, worker: int, text: str) -> None:
    """Leave a text as a worker does, without arming this process's own faulthandler."""
    left = stacks.StackFile.__new__(stacks.StackFile)
    left._fd = os.open(f"/proc/self/fd/{page.fd}", os.O_RDWR)
    os.lseek(left._fd, stacks._start(worker), os.SEEK_SET)
    left.leave(text)
    os.close(left._fd)


def test_the_stack_of_a_wait_for_fetch_threads_shows_those_threads() -> None:
    reading = f"""  File "/home/me/data.py", line 12 in read
  File "/home/me/data.py", line 30 in __getitem__
  File "{OURS}fetch_threads.py", line 150 in _make
  File "{OURS}fetch_threads.py", line 140 in _run
  File "/usr/lib/threading.py", line 982 in run
"""
    idle = f'  File "{OURS}fetch_threads.py", line 138 in _run\n  File "/usr/lib/threading.py", line 982 in run\n'
    other = '  File "/home/me/pool.py", line 9 in idle\n'
    main = f'  File "{OURS}fetch_threads.py", line 90 in fetch\n  File "{OURS}main.py", line 207 in _work\n'
    heads = [f"Thread 0x{number} (most recent call first):\n" for number in range(5)]
    dump = "".join(map("".join, zip(heads, [idle, reading, other, reading, idle], strict=True)))
    dump += "\nCurrent thread 0x9 (most recent call first):\n" + main
    assert stacks.shortened(dump) == [
        "(2 of its threads)",
        'File "/home/me/data.py", line 12 in read',
        'File "/home/me/data.py", line 30 in __getitem__',
    ]
    crashed = dump.replace("Current thread", "Thread").replace("Thread 0x3", "Current thread 0x3")
    assert stacks.crash_stack(CRASH + crashed) == stacks.shortened(dump)[1:]
