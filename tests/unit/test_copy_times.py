"""Some copies are timed by events, and the others taken for like them. Nothing is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from stoker._runtime.device.copy_times import CopyTimes

STREAM: Any = object()
COPY_MS = 2.0


class Event:
    """An event on a device whose clock stands still between copies. Done when the device has come so far."""

    now_ms = 0.0
    come_ms = float("inf")
    made = 0

    def __init__(self, device: Any, *, enable_timing: bool) -> None:
        assert enable_timing
        type(self).made += 1
        self.at_ms = -1.0

    def record(self, stream: Any) -> None:
        self.at_ms = self.now_ms

    def query(self) -> bool:
        return self.at_ms <= self.come_ms

    def elapsed_time(self, end: Event) -> float:
        return end.at_ms - self.at_ms


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Event]]:
    monkeypatch.setattr(torch, "Event", Event)
    yield Event
    Event.now_ms, Event.come_ms, Event.made = 0.0, float("inf"), 0


def copy(times: CopyTimes, count: int) -> None:
    for _ in range(count):
        before = times.begun(STREAM)
        Event.now_ms += COPY_MS
        if before is not None:
            assert times.ended(before, STREAM) is not None


def test_copies_that_are_not_timed_are_taken_for_like_those_that_are(events: type[Event]) -> None:
    times = CopyTimes(torch.device("cpu"))
    assert times.copied_ns is None
    copy(times, 100)
    assert events.made == 2 * (4 + 100 // 16)
    assert times.copied_ns == 100 * COPY_MS * 1e6


def test_a_device_that_is_far_behind_is_not_waited_for(events: type[Event]) -> None:
    events.come_ms = -1
    times = CopyTimes(torch.device("cpu"))
    copy(times, 1000)
    assert (times.copied_ns, events.made) == (None, 2 * 8)
    events.come_ms = float("inf")
    copy(times, 1)
    assert times.copied_ns == 1001 * COPY_MS * 1e6


@pytest.mark.parametrize("fails", ["__init__", "record", "query", "elapsed_time"])
def test_a_device_that_times_nothing_is_left_alone(
    events: type[Event], monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("this device times nothing")

    times = CopyTimes(torch.device("cpu"))
    before = times.begun(STREAM)
    assert before is not None
    monkeypatch.setattr(Event, fails, refuse)
    ended = times.ended(before, STREAM)
    assert (ended is None) == (fails in ("__init__", "record"))
    assert [times.begun(STREAM) for _ in range(20)] == [None] * 20
    assert times.copied_ns is None
