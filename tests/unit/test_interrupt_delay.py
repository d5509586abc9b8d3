"""A delayed Ctrl-C comes when the region ends, once, with the handler that was there before."""

from __future__ import annotations

import signal
import threading

import pytest

from stoker._runtime.executors.interrupt_delay import InterruptDelay, interrupts_let_through


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_it_comes_at_the_end() -> None:
    before, reached = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), InterruptDelay():
        interrupt()
        interrupt()
        reached.append("end")
    assert reached == ["end"]
    assert signal.getsignal(signal.SIGINT) is before


def test_of_nested_regions_the_outermost_counts() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), InterruptDelay():
        with InterruptDelay():
            interrupt()
        reached.append("after the inner one")
    assert reached == ["after the inner one"]


def test_a_wait_inside_lets_it_through() -> None:
    reached = []
    with InterruptDelay():
        with pytest.raises(KeyboardInterrupt), interrupts_let_through():
            interrupt()
            reached.append("not here")
        with pytest.raises(KeyboardInterrupt):
            interrupt()
            with interrupts_let_through():
                reached.append("nor here: it was noted before")
    assert reached == []


def test_it_is_delayed_again_after_a_wait() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), InterruptDelay():
        with interrupts_let_through():
            pass
        interrupt()
        reached.append("end")
    assert reached == ["end"]


def test_without_a_delay_it_comes_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts_let_through():
        interrupt()


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_is_not_handled_here_stays_so(handler: signal.Handlers) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        with InterruptDelay():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_leave_signals_alone() -> None:
    seen = []

    def work() -> None:
        with InterruptDelay(), interrupts_let_through():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
