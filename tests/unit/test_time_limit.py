"""The time limit on code of this thread: it interrupts what it can, and leaves SIGALRM and the timer as they were.

pytest's own limit uses SIGALRM by default, so these tests have theirs kept by a thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stoker._runtime.executors.time_limit import TimeUp, can_limit, within

pytestmark = pytest.mark.timeout(120, method="thread")

SHORT_S = 0.005


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    assert can_limit(), "SIGALRM belongs to somebody else"
    yield
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def sleeps() -> None:
    time.sleep(1000)


def reads() -> None:
    """Blocks in a read, which Python repeats after a signal that raised nothing."""
    ours, theirs = os.pipe()
    try:
        os.read(ours, 1)
    finally:
        os.close(ours)
        os.close(theirs)


def computes() -> None:
    while True:
        pass


def waits_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def catches_every_exception() -> None:
    while True:
        try:
            time.sleep(1000)
        except Exception:
            continue


@pytest.mark.parametrize(
    "code",
    [sleeps, reads, computes, waits_for_a_lock, catches_every_exception],
    ids=lambda code: code.__name__,
)
def test_it_interrupts(code: Callable[[], None]) -> None:
    with pytest.raises(TimeUp) as caught:
        within(SHORT_S, code)
    assert any(entry.name == code.__name__ for entry in caught.traceback)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_lost_in_a_finalizer_rings_again() -> None:
    class Stubborn:
        def __del__(self) -> None:
            sleeps()

    def lets_go() -> None:
        Stubborn()
        sleeps()

    with pytest.raises(TimeUp):
        within(SHORT_S, lets_go)


def test_code_that_is_done_in_time_is_left_alone() -> None:
    left_s, interval_s = within(1000, lambda: signal.getitimer(signal.ITIMER_REAL))
    assert 0 < left_s <= 1000
    assert interval_s == pytest.approx(1000)


def test_an_error_of_the_code_comes_out_as_it_is() -> None:
    with pytest.raises(ValueError, match="mine"):
        within(1000, lambda: int("mine"))


def test_a_signal_that_comes_late_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler may still be called between the end of the block and the return of the old one."""
    handlers = []
    monkeypatch.setattr(signal, "signal", lambda number, handler: handlers.append(handler))
    within(1000, bool)
    ring = handlers[0]
    assert ring(signal.SIGALRM, None) is None


def test_not_off_the_main_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(can_limit).result() is False


def test_not_where_sigalrm_has_a_handler() -> None:
    previous = signal.signal(signal.SIGALRM, lambda number, frame: None)
    try:
        assert not can_limit()
    finally:
        signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_not_where_the_timer_runs_or_sigalrm_is_ignored(handler: signal.Handlers) -> None:
    previous = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 1000 if handler is signal.SIG_DFL else 0)
    try:
        assert not can_limit()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_not_where_the_system_has_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "setitimer")
    try:
        assert not can_limit()
    finally:
        monkeypatch.undo()


def test_not_within_itself() -> None:
    assert within(1000, can_limit) is False


@pytest.mark.serial
def test_it_never_rings_after_the_work() -> None:
    """Tiny limits end at every place around the work: in it, while it begins, while it ends. None escapes or stays armed."""
    rung = 0
    for number in range(20_000):
        try:
            within(1e-6 * (1 + number % 60), lambda: sum(range(number % 200)))
        except TimeUp:
            rung += 1
            assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        with contextlib.suppress(ValueError):
            int("no number")  # a place to ring too late
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert 0 < rung < 20_000


def test_a_finalizer_is_let_finish_before_it_rings() -> None:
    finished: list[str] = []

    def finalize(name: str) -> None:
        until = time.monotonic() + 0.01
        while time.monotonic() < until:
            pass
        finished.append(name)

    class Thing:
        def __del__(self) -> None:
            finalize("method")

    def work() -> None:
        thing = Thing()
        weakref.finalize(thing, finalize, "callback")
        del thing
        while True:
            pass

    with pytest.raises(TimeUp):
        within(0.001, work)
    assert sorted(finished) == ["callback", "method"]
