"""How many bytes may be undelivered: the arithmetic, who shares, and when it is looked at."""

from __future__ import annotations

import pytest

from stoker._host.memory_available import Gauge, MemoryAvailable
from stoker._runtime.pool.memory_budget import MemoryBudget, in_words
from stoker._runtime.scheduler.policy import (
    BUDGET_INTERVAL_S,
    allowed_bytes,
    idle_keep_bytes,
    memory_is_short,
)

MIB, GIB = 1 << 20, 1 << 30


class FakeGauge(Gauge):
    def __init__(self, room: MemoryAvailable) -> None:
        self.room = room
        self.readings = 0

    def read(self) -> MemoryAvailable:
        self.readings += 1
        return self.room


@pytest.mark.parametrize(
    ("given", "available", "held", "sharers", "allowed"),
    [
        (None, 16 * GIB, 0, 1, 4 * GIB),
        (None, 12 * GIB, 4 * GIB, 1, 4 * GIB),
        (None, 16 * GIB, 0, 8, GIB // 2),
        (None, 0, 0, 1, 1),
        (None, None, GIB, 4, 0),
        (GIB, 16 * GIB, 0, 8, GIB),
        (GIB, GIB, 0, 8, GIB // 2),
        (GIB, GIB // 2, GIB, 1, 3 * GIB // 4),
        (GIB, 0, 0, 1, 1),
        (GIB, None, 0, 1, GIB),
    ],
)
def test_the_arithmetic(
    given: int | None, available: int | None, held: int, sharers: int, allowed: int
) -> None:
    found = allowed_bytes(given_bytes=given, available_bytes=available, held_bytes=held, sharers=sharers)
    assert found == allowed


@pytest.mark.parametrize(
    ("budget", "kept"), [(0, 64 * MIB), (32 * MIB, 32 * MIB), (256 * MIB, 64 * MIB), (4 * GIB, GIB // 2)]
)
def test_what_an_idle_arena_may_keep(budget: int, kept: int) -> None:
    assert idle_keep_bytes(budget) == kept


@pytest.mark.parametrize(
    ("available", "total", "short"),
    [
        (GIB, 16 * GIB, True),
        (2 * GIB, 16 * GIB, False),
        (50 * GIB, 1024 * GIB, False),
        (3 * GIB, 1024 * GIB, True),
        (None, GIB, False),
        (GIB, None, False),
    ],
)
def test_when_memory_is_short(available: int | None, total: int | None, short: bool) -> None:
    assert memory_is_short(available, total) is short


def test_the_default_is_divided_and_says_so() -> None:
    gauge = FakeGauge(MemoryAvailable(15 * GIB, 64 * GIB))
    budget = MemoryBudget(None, gauge=gauge, environ={"LOCAL_WORLD_SIZE": "2"})
    budget.read(GIB, loaders=2)
    assert budget.bytes == GIB
    assert budget.reason == (
        "a quarter of the 16 GiB available, divided by 2 local ranks (LOCAL_WORLD_SIZE), divided by 2 loaders at work"
    )
    gauge.room = MemoryAvailable(None, None)
    budget.read(0, loaders=1)
    assert budget.bytes == 0
    assert budget.reason == "unbounded: the available memory is unknown"


def test_a_given_budget_is_cut_when_memory_runs_out() -> None:
    gauge = FakeGauge(MemoryAvailable(16 * GIB, 64 * GIB))
    budget = MemoryBudget(GIB, gauge=gauge, environ={})
    budget.read(0, loaders=3)
    assert (budget.bytes, budget.reason, budget.short) == (GIB, "given: 1 GiB", False)
    gauge.room = MemoryAvailable(GIB, 64 * GIB)
    budget.read(0, loaders=3)
    assert (budget.bytes, budget.short) == (GIB // 2, True)
    assert budget.reason == "1 GiB were given, cut to half of the 1 GiB available"


def test_a_reading_lasts_for_a_while() -> None:
    now = [100.0]
    budget = MemoryBudget(None, gauge=FakeGauge(MemoryAvailable(GIB, GIB)), environ={}, clock=lambda: now[0])
    assert budget.due
    budget.read(0, 1)
    assert budget.due, "whoever only looks must not keep the engine from acting"
    budget.settle()
    assert not budget.due
    now[0] += BUDGET_INTERVAL_S
    assert budget.due


@pytest.mark.parametrize(
    ("nbytes", "words"), [(0, "0 bytes"), (2048, "2 KiB"), (3 * MIB // 2, "1.5 MiB"), (9 * GIB, "9 GiB")]
)
def test_sizes_in_words(nbytes: int, words: str) -> None:
    assert in_words(nbytes) == words
