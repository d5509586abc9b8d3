"""The pilot in the closed loop, in virtual time: it gets there, it stays there, it comes back, and it says why."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from stoker._core.tuning.window import Bounds
from tests.unit.tuning.plant import Flight, Plant, Times, best, fly

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
WITHIN_S = 30.0
MS = 1_000_000


def even(cpu_s: float, off_s: float) -> Times:
    return lambda rng, number: (cpu_s, off_s)


def uneven(cpu_s: float, off_s: float) -> Times:
    def times(rng: random.Random, number: int) -> tuple[float, float]:
        return cpu_s * rng.uniform(0.5, 1.5), off_s * rng.uniform(0.5, 1.5)

    return times


def stragglers(rng: random.Random, number: int) -> tuple[float, float]:
    return (0.002, 0.02) if number % 31 else (0.002, 0.8)


def bounds(cpus: float = 2.0, most: int = 32, window_most: int = 256) -> Bounds:
    return Bounds(most, "the limit of this test", cpus=cpus, window_most=window_most)


def lasting(cpu_s: float, off_s: float) -> Callable[[float], tuple[float, float]]:
    return lambda now_s: (cpu_s, off_s)


PLANTS: dict[str, Callable[[float, int], Plant]] = {
    "sleep": lambda cpus, k: Plant(cpus, even(0.001, 0.2), lasting(0.001, 0.019), k),
    "sleep, nothing else to do": lambda cpus, k: Plant(cpus, even(0.001, 0.1), lasting(0.00001, 0.0), k),
    "compute": lambda cpus, k: Plant(cpus, even(0.03, 0.0), lasting(0.001, 0.02), k),
    "compute, nothing else to do": lambda cpus, k: Plant(cpus, even(0.03, 0.0), lasting(0.0001, 0.0), k),
    "compute beside a step that computes": lambda cpus, k: Plant(
        cpus, even(0.03, 0.0), lasting(0.02, 0.0), k
    ),
    "mixed": lambda cpus, k: Plant(cpus, uneven(0.01, 0.04), lasting(0.005, 0.01), k),
    "stragglers": lambda cpus, k: Plant(cpus, stragglers, lasting(0.001, 0.009), k),
    "slow parent": lambda cpus, k: Plant(cpus, even(0.002, 0.01), lasting(0.001, 0.004), k, parent_s=0.02),
    "enough": lambda cpus, k: Plant(cpus, even(0.002, 0.002), lasting(0.001, 0.029), k),
    "storage that four workers fill": lambda cpus, k: Plant(
        cpus, even(0.001, 0.08), lasting(0.001, 0.004), k, storage_lanes=4
    ),
}


def check(flight: Flight, *, settled_s: float) -> None:
    """What holds of every flight: reasons, and no back and forth once it has settled."""
    for _, action in flight.actions:
        assert action.reason
        assert any(each.isdigit() for each in action.reason), action.reason
        assert action.workers >= 1
    late = [action for at_s, action in flight.changes if at_s > settled_s]
    grown = [action.workers for action in late if action.kind == "grow"]
    assert len(grown) == len(set(grown)), f"tried the same twice: {late}"
    assert sum(action.kind == "revert" for action in late) <= 3, late


@pytest.mark.parametrize("cpus", [2.0, 8.0])
@pytest.mark.parametrize("name", PLANTS)
def test_it_is_there_within_half_a_minute_and_stays(name: str, cpus: float) -> None:
    make = PLANTS[name]
    _, best_s = best(lambda count: make(cpus, count), COUNTS)
    flight = fly(make(cpus, 2), bounds(cpus), 120.0)
    assert flight.interval_s(WITHIN_S - 6, WITHIN_S + 4) <= 1.1 * best_s
    assert flight.interval_s(90) <= 1.1 * best_s
    check(flight, settled_s=WITHIN_S)
