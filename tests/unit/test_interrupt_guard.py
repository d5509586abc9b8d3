"""The guard stays held exactly where a region was left by an exception."""

from __future__ import annotations

import pytest

from stoker._runtime.executors.interrupt_guard import InterruptGuard


def test_a_region_that_is_left_cleanly_leaves_nothing() -> None:
    guard = InterruptGuard()
    with guard:
        assert guard.held
        with guard:
            pass
        assert guard.held, "the outer region is still open"
    assert not guard.held


def test_an_interrupted_region_stays_held() -> None:
    guard = InterruptGuard()
    with pytest.raises(KeyboardInterrupt), guard, guard:
        raise KeyboardInterrupt
    assert guard.held
    with guard:
        pass
    assert guard.held, "later regions do not repair it"


def test_an_exception_that_costs_nothing_leaves_nothing() -> None:
    guard = InterruptGuard()

    def fail() -> None:
        with guard:
            guard.leave()
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert not guard.held


def test_a_region_over_two_calls_is_idempotent() -> None:
    guard = InterruptGuard()
    guard.hold()
    guard.hold()
    assert guard.held
    guard.release()
    assert not guard.held
