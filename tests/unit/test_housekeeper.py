"""The housekeeper under Ctrl-C: no lock stays held, and no thread is known that was never started."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from stoker._runtime.pool.housekeeper import Housekeeper

PATIENCE_S = 30.0


def done_by(housekeeper: Housekeeper) -> bool:
    """Whether a new job is done."""
    done = threading.Event()
    housekeeper.do(done.set)
    return done.wait(PATIENCE_S)


def test_ctrl_c_before_the_thread_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    housekeeper, start = Housekeeper(), threading.Thread.start
    first = threading.Event()

    def interrupted(thread: threading.Thread) -> None:
        signal.raise_signal(signal.SIGINT)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        housekeeper.do(first.set)
    monkeypatch.setattr(threading.Thread, "start", start)
    assert first.wait(PATIENCE_S)
    assert done_by(housekeeper)
    housekeeper.tidy()


@pytest.mark.parametrize("call", ["do", "tidy"])
def test_ctrl_c_while_the_lock_is_taken(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread waits for a job that is due later. It could not go on if the interrupt left the lock held."""
    housekeeper = Housekeeper()
    later: Any = housekeeper.do(lambda: None, after_s=3600)
    enter = threading.Condition.__enter__

    def interrupted(condition: Any) -> Any:
        entered = enter(condition)
        if condition is housekeeper._changed and threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGINT)
        return entered

    monkeypatch.setattr(threading.Condition, "__enter__", interrupted)
    done = threading.Event()
    try:
        if call == "do":
            housekeeper.do(done.set)
        else:
            housekeeper.tidy()
    except KeyboardInterrupt:
        pass
    monkeypatch.setattr(threading.Condition, "__enter__", enter)
    assert done.wait(PATIENCE_S) if call == "do" else done_by(housekeeper)
    thread = housekeeper._thread
    housekeeper.forget(later)
    housekeeper.tidy()
    assert thread is not None
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
