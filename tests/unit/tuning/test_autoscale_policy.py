"""The policy in the closed loop, in virtual time: it gets there, it stays there, it comes back, and it says why."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker._runtime.autoscale.policy import GAP_NS, AutoscalePolicy
from stoker._runtime.autoscale.types import AutoscaleAction, AutoscaleBounds, Observation
from stoker._runtime.simulation.replay import SimulationResult
from tests.unit.tuning.simulated_loader import Flight, Plant, Times, best, fly

COUNTS = (1, 2, 4, 8, 12, 32)
WITHIN_S = 30.0
MS = 1_000_000


def even(cpu_s: float, off_s: float) -> Times:
    return lambda rng, number: (cpu_s, off_s)


def uneven(cpu_s: float, off_s: float) -> Times:
    """Half to one and a half times as long, spread so evenly that few batches have the mean of many."""

    def times(rng: random.Random, number: int) -> tuple[float, float]:
        factor = 0.5 + (number * 0.6180339887 + 0.1) % 1
        return cpu_s * factor, off_s * factor

    return times


def stragglers(rng: random.Random, number: int) -> tuple[float, float]:
    return (0.002, 0.02) if number % 31 else (0.002, 0.8)


def bounds(cpus: float = 2.0, most: int = 32, window_most: int = 256) -> AutoscaleBounds:
    return AutoscaleBounds(most, "the limit of this test", cpus=cpus, window_most=window_most)


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
    """What holds of every flight: reasons with numbers, and no back and forth once it has settled."""
    for _, action in flight.actions:
        assert action.code
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
    _, best_s = best(lambda count: make(cpus, count), COUNTS, 5.0)
    flight = fly(make(cpus, 2), bounds(cpus), 80.0)
    assert flight.interval_s(WITHIN_S - 6, WITHIN_S + 4) <= 1.1 * best_s
    assert flight.interval_s(60) <= 1.1 * best_s
    check(flight, settled_s=WITHIN_S)


@given(
    cpus=st.sampled_from([1.0, 2.0, 6.0]),
    making_s=st.floats(0.02, 0.2),
    off=st.sampled_from([0.0, 0.3, 0.6, 0.97]),
    wanted=st.floats(0.5, 12.0),
    computing=st.sampled_from([0.05, 0.5, 1.0]),
    noise=st.sampled_from([0.0, 0.1, 0.2]),
    workers=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=12, deadline=None)
def test_any_plant(
    cpus: float,
    making_s: float,
    off: float,
    wanted: float,
    computing: float,
    noise: float,
    workers: int,
    seed: int,
) -> None:
    step_s = making_s / wanted

    def make(count: int) -> Plant:
        times = uneven(making_s * (1 - off), making_s * off)
        return Plant(
            cpus, times, lasting(step_s * computing, step_s * (1 - computing)), count, noise=noise, seed=seed
        )

    _, best_s = best(make, COUNTS[:-1], 10.0)
    flight = fly(make(workers), bounds(cpus), 90.0)
    assert flight.interval_s(WITHIN_S - 6, WITHIN_S + 10) <= 1.12 * best_s  # both are means of noisy steps
    check(flight, settled_s=WITHIN_S + 10)
    assert len([at_s for at_s, _ in flight.changes if at_s > WITHIN_S + 10]) <= 4


@pytest.mark.parametrize(("before_s", "after_s"), [(0.04, 0.01), (0.01, 0.06)], ids=["faster", "slower"])
def test_it_follows_the_demand(before_s: float, after_s: float) -> None:
    def make(count: int, *, changed: bool = False) -> Plant:
        def step(now_s: float) -> tuple[float, float]:
            return 0.001, after_s if changed or now_s > 60 else before_s

        return Plant(4.0, uneven(0.01, 0.05), step, count)

    _, best_s = best(lambda count: make(count, changed=True), COUNTS, 5.0)
    flight = fly(make(2), bounds(4.0), 130.0)
    assert flight.interval_s(60 + WITHIN_S - 6, 60 + WITHIN_S + 6) <= 1.1 * best_s
    check(flight, settled_s=60 + WITHIN_S)
    if after_s > before_s:
        assert flight.history[-1][1] < max(workers for _, workers, _ in flight.history)


def test_it_does_not_run_after_neighbours_and_recovers_when_they_go() -> None:
    def make(count: int, *, alone: bool = False) -> Plant:
        return Plant(
            4.0,
            uneven(0.03, 0.01),
            lasting(0.001, 0.019),
            count,
            foreign=lambda now_s: 3.0 if 40 < now_s < 80 and not alone else 0.0,
        )

    _, best_s = best(lambda count: make(count, alone=True), COUNTS, 5.0)
    flight = fly(make(1), bounds(4.0), 130.0)
    assert flight.interval_s(26, 38) <= 1.1 * best_s
    assert flight.interval_s(80 + WITHIN_S - 6) <= 1.1 * best_s
    assert len(flight.changes) <= 8
    assert all(workers <= 8 for _, workers, _ in flight.history)


def test_a_restless_neighbour_does_not_make_it_restless() -> None:
    loads = random.Random(7)
    series = [loads.choice([0.0, 0.5, 2.0]) for _ in range(200)]
    plant = Plant(
        2.0,
        uneven(0.03, 0.0),
        lasting(0.001, 0.02),
        2,
        foreign=lambda now_s: series[int(now_s / 1.3)],
        noise=0.1,
    )
    flight = fly(plant, bounds(2.0), 200.0)
    assert len(flight.changes) <= 8


def test_eight_ranks_on_192_cpus() -> None:
    """Each has 24 CPUs and a loop that wants more than they give: the CPUs are filled and not overrun."""

    def make(count: int) -> Plant:
        return Plant(24.0, uneven(0.1, 0.01), lasting(0.001, 0.002), count)

    _, best_s = best(make, (16, 22, 26, 40), 4.0)
    flight = fly(
        make(8), replace(bounds(24.0, most=64), cpus_reason="192 CPUs, divided by 8 local ranks"), 34.0
    )
    assert flight.interval_s(24) <= 1.1 * best_s
    assert flight.history[-1][1] <= 32
    holds = [action for _, action in flight.actions if action.kind == "hold"]
    assert [action.code for action in holds] == ["cpus"]
    assert "192 CPUs, divided by 8 local ranks" in holds[0].reason


# Rules, one by one: windows by hand


def window(stall: float = 0.0, workers: int = 2, interval_ms: float = 10.0, **more: object) -> Observation:
    steps = 200
    wall_ns = int(steps * interval_ms * MS)
    found = Observation(
        steps=steps,
        wall_ns=wall_ns,
        wait_ns=int(stall * wall_ns),
        workers=workers,
        window=2 * workers,
        busy=0.97,
        waits=steps if stall else 0,
        cpu_ns=1 * MS,
        off_ns=19 * MS,
        batch_ns=(20 * MS,) * 64,
        own_cpu_ns=wall_ns // 20,
        foreign_cpus=0.0,
    )
    return replace(found, **more)  # type: ignore[arg-type]


def test_nothing_is_concluded_from_gaps_and_warm_up() -> None:
    policy = AutoscalePolicy(bounds())
    for odd in (
        window(0.5, gap_ns=GAP_NS + 1),
        window(0.5, warm_up=True),
        window(0.5, steps=0),
        window(0.5, wall_ns=0),
    ):
        assert policy.decide(odd) is None
    action = policy.decide(window(0.5))
    assert action is not None
    assert action.kind == "grow"


def test_a_shorter_wait_with_a_longer_step_is_taken_back_and_not_tried_again() -> None:
    policy = AutoscalePolicy(bounds())
    grown = policy.decide(window(0.2))
    assert grown is not None
    back = policy.decide(window(0.05, workers=grown.workers, interval_ms=12.0))
    assert back is not None
    assert (back.kind, back.workers, back.window) == ("revert", 2, 4)
    assert "12 ms instead of 10 ms" in back.reason
    again = [policy.decide(window(0.2)) for _ in range(40)]
    tried = {each.workers for each in again if each is not None and each.kind == "grow"}
    assert grown.workers not in tried


def test_what_gains_nothing_is_taken_back_for_good_until_the_demand_is_another() -> None:
    policy = AutoscalePolicy(bounds())
    have, actions = 2, []
    for _ in range(60):
        action = policy.decide(window(0.2, workers=have))
        if action is not None:
            actions.append(action)
            have = action.workers
    assert [each.kind for each in actions] == ["grow", "revert", "hold"]
    assert actions[-1].code == "tried"
    faster = [policy.decide(window(0.6, workers=2)) for _ in range(3)]
    assert [each.kind for each in faster if each is not None] == ["grow"]


def test_the_more_was_taken_back_the_longer_it_waits_before_it_tries_again() -> None:
    rng = random.Random(5)
    policy = AutoscalePolicy(bounds())
    have, tried = 2, 0
    for _ in range(300):  # ten minutes on a machine on which nothing stays as it is
        step_ms = rng.choice([2.0, 4.0, 8.0])
        seen = window(
            0.3, have, rng.uniform(10, 14) * (1 + 0.2 * (have > 2)), foreign_cpus=rng.choice([0.0, 2.0])
        )
        action = policy.decide(replace(seen, wait_ns=int(seen.wall_ns - seen.steps * step_ms * MS)))
        if action is not None:
            tried += action.kind == "grow"
            have = action.workers
    assert tried <= 15


def test_fewer_after_three_calm_periods_and_only_if_the_replay_agrees() -> None:
    said = [0.5]
    policy = AutoscalePolicy(bounds(), oracle=lambda *args, **kwargs: SimulationResult(1.0, said[0], 0.5))
    assert all(policy.decide(window(0.001, workers=8)) is None for _ in range(60))
    said[0] = 0.004
    actions = [
        each for each in (policy.decide(window(0.001, workers=8)) for _ in range(20)) if each is not None
    ]
    assert actions[0].kind == "shrink"
    assert (actions[0].workers, actions[0].window) == (6, 12)
    assert "0.40%" in actions[0].reason


def test_idle_workers_and_nothing_ready_is_not_a_matter_of_workers() -> None:
    policy = AutoscalePolicy(bounds(window_most=0))
    actions = [policy.decide(window(0.3, busy=0.3, waits=30)) for _ in range(10)]
    (hold,) = [each for each in actions if each is not None]
    assert (hold.kind, hold.code, hold.workers) == ("hold", "idle", 2)


def test_time_in_next_with_batches_that_are_there_is_the_training_process_own() -> None:
    policy = AutoscalePolicy(bounds(), oracle=lambda *args, **kwargs: SimulationResult(1.0, 0.0, 0.5))
    actions = [
        each
        for each in (policy.decide(window(0.3, workers=4, waits=1)) for _ in range(40))
        if each is not None
    ]
    assert [(each.kind, each.code) for each in actions[:2]] == [("hold", "parent"), ("shrink", "spare")]


def test_a_blocked_line_is_split_first() -> None:
    policy = AutoscalePolicy(replace(bounds(), may_split=True))
    action = policy.decide(window(0.3, busy=0.3, waits=20, blocked=18, rows=8))
    assert action is not None
    assert (action.kind, action.split, action.workers) == ("split", True, 2)


@pytest.mark.parametrize(
    ("more", "code", "told"),
    [
        ({"room_bytes": 100 << 20, "worker_bytes": 200 << 20}, "memory", "100 MiB are left"),
        ({"cpu_ns": 20 * MS, "off_ns": 0}, "cpus", "compute 100% of their time"),
        ({"cpu_ns": 20 * MS, "off_ns": 0, "throttled": 0.4}, "throttled", "40% of its periods"),
        ({"workers": 32}, "most", "the limit of this test"),
    ],
    ids=["memory", "cpus", "throttled", "most"],
)
def test_what_stands_in_the_way_is_named(more: dict[str, object], code: str, told: str) -> None:
    action = AutoscalePolicy(bounds(1.0)).decide(window(0.5, **{"workers": 2, **more}))  # type: ignore[arg-type]
    assert action is not None
    assert (action.kind, action.code) == ("hold", code)
    assert told in action.reason


def test_a_change_that_nobody_carries_out_is_given_up() -> None:
    policy = AutoscalePolicy(bounds())
    first = policy.decide(window(0.5))
    assert first is not None
    later = [each for each in (policy.decide(window(0.5)) for _ in range(30)) if each is not None]
    assert [each.kind for each in later] == ["hold"]


def test_workers_in_each_others_way_are_taken_away() -> None:
    policy = AutoscalePolicy(bounds(2.0))
    crowded = window(0.3, workers=8, cpu_ns=20 * MS, off_ns=0, runq_ns=60 * MS, batch_ns=(80 * MS,) * 64)
    action = policy.decide(crowded)
    assert action is not None
    assert (action.kind, action.workers, action.code) == ("shrink", 2, "crowded")


def test_bounds_hold_whatever_a_window_says() -> None:
    rng = random.Random(3)
    policy = AutoscalePolicy(AutoscaleBounds(5, "so it is", least=2, cpus=4.0, window_most=40))
    have: list[AutoscaleAction] = []
    workers = 3
    for _ in range(300):
        action = policy.decide(
            window(
                rng.choice([0, 0.001, 0.01, 0.5]),
                workers,
                rng.uniform(5, 20),
                busy=rng.random(),
                blocked=rng.randrange(200),
            )
        )
        if action is not None:
            have.append(action)
            workers = action.workers
    assert have
    assert all(2 <= each.workers <= 5 for each in have)
