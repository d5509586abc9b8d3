"""The race on plants whose truth is known."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.model.block import Block
from stoker._tools.tune.model.race import HOPELESS, Race, RaceEntry
from stoker._tools.tune.model.standings import CountedBlock, Standings
from tests.unit.tuning.simulated_blocks import Plant, raced, workers

BASE = Setting(0)
CURVE = {
    Setting(0): 10.0,
    Setting(1): 9.0,
    Setting(2): 5.0,
    Setting(3): 4.0,
    Setting(4): 3.3,
    Setting(6): 4.2,
}


def entered(settings=CURVE, **options):
    return Race(BASE, settings, cpus=4, **options)


@pytest.mark.parametrize("seed", range(5))
def test_the_fastest_wins_whatever_the_noise(seed):
    race, plant = entered(seed=seed), Plant(CURVE, seed=seed)
    spent_s = raced(race, plant)
    assert race.best == Setting(4)
    assert race.stopped == "one left"
    assert spent_s <= 31
    assert not race.standings.rivals(race.best)


def test_what_is_clearly_worse_is_not_run_again_and_again():
    race, plant = entered(), Plant(CURVE)
    raced(race, plant)
    runs = Counter(plant.blocks)
    assert runs[Setting(0)] <= 3
    assert runs[Setting(4)] == max(runs.values())
    assert "slower" in race.left[Setting(0)]


def test_of_settings_within_three_percent_the_cheapest_is_taken():
    flat = {Setting(0): 10.0, Setting(2): 5.0, Setting(4): 4.95, Setting(8): 4.92}
    for seed in range(5):
        race = entered(flat, seed=seed)
        raced(race, Plant(flat, noise=0.005, mood=0.02, seed=seed))
        assert race.best == Setting(2)
        assert race.stopped == "the rest are within 3 %"


def test_threads_have_to_be_faster_not_only_cheaper() -> None:
    processes, threads = Setting(4), Setting(4, executor="thread")
    for took, best in ((99, processes), (90, threads)):
        blocks = [
            CountedBlock(number, Block(setting, 100, wall_ns, 0, job_cpu_ns=cpu_ns, memory_bytes=memory))
            for number in range(4)
            for setting, wall_ns, cpu_ns, memory in (
                (BASE, 900_000, 900, 1),
                (processes, 100_000, 900, 80),
                (threads, took * 1000, 300, 2),
            )
        ]
        assert Standings(blocks, BASE).choice() == best


def test_a_little_that_is_not_certain_is_no_reason_to_change() -> None:
    def chosen(*times: int) -> Setting:
        blocks = [
            CountedBlock(number, Block(setting, 100, wall_ns, 0, job_cpu_ns=900))
            for number, took in enumerate(times)
            for setting, wall_ns in ((BASE, 100_000), (Setting(2), took * 1000))
        ]
        return Standings(blocks, BASE).choice()

    assert chosen(80, 112, 90, 96, 95) == BASE
    assert chosen(95, 95, 95, 95, 95) == Setting(2)
    assert chosen(60, 90, 70, 75, 76) == Setting(2)


def test_ties_go_by_cpu_then_memory_then_workers_then_simplicity():
    def chosen(settings, **costs):
        times = {BASE: 20.0} | dict.fromkeys(settings, 5.0)
        race = entered(times)
        raced(race, Plant(times, noise=0.002, mood=0.0, **costs))
        return race.best

    few, many, threads = Setting(2), Setting(4), Setting(4, executor="thread")
    same = dict.fromkeys((few, many, threads, BASE), 3.0)
    assert chosen([few, many], cpu_ms=same | {few: 4.0}) == many
    assert chosen([few, many], cpu_ms=same, memory={few: 100, many: 50}) == many
    assert chosen([few, many], cpu_ms=same, memory=dict.fromkeys(same, 50)) == few
    assert chosen([threads, many], cpu_ms=same, memory=dict.fromkeys(same, 50)) == many


def test_a_baseline_among_the_best_is_kept_unless_it_costs_more():
    torch = Setting(4, prefetch=2, engine="torch")
    times = {torch: 5.05, Setting(2): 5.0, Setting(4): 5.0}
    race = Race(torch, times, cpus=4)
    raced(race, Plant(times, noise=0.003, mood=0.0, cpu_ms=dict.fromkeys(times, 3.0)))
    assert race.best == torch
    race = Race(torch, times, cpus=4)
    raced(race, Plant(times, noise=0.003, mood=0.0, cpu_ms=dict.fromkeys(times, 3.0) | {torch: 6.0}))
    assert race.best == Setting(2)


def test_settings_that_cannot_be_told_apart_are_rivals():
    close = {Setting(0): 10.0, Setting(2): 5.0, Setting(3): 4.85, Setting(4): 5.1}
    race = entered(close)
    raced(race, Plant(close, noise=0.15), budget_s=8.0)
    assert race.stopped == HOPELESS
    assert race.standings.rivals(race.best)


def test_a_failing_setting_leaves_with_its_reason_and_the_others_go_on():
    race = entered()
    raced(race, Plant(CURVE, failures={Setting(4): "no more memory"}))
    assert race.failed == {Setting(4): "no more memory"}
    assert race.best == Setting(3)
    told = {each.setting: each.failure for each in race.points()}
    assert told[Setting(4)] == "no more memory"


def test_a_baseline_that_fails_does_not_end_it():
    race = entered()
    raced(race, Plant(CURVE, failures={BASE: "it raised"}))
    assert race.best == Setting(4)
    assert race.points()[0].failure == "it raised"


def test_when_all_fail_there_is_no_best():
    race = entered()
    raced(race, Plant(CURVE, failures=dict.fromkeys(CURVE, "broken")))
    assert race.best is None
    assert race.stopped == "failed"


def test_failures_before_anything_was_measured_do_not_end_in_an_error():
    race, plant = entered(), Plant(CURVE, failures={BASE: "it raised"})
    entries = race.ask(30.0)
    assert entries is not None
    race.tell([plant.run(entries[0])])
    assert race.ask(0.1) is None
    assert race.stopped == "budget"
    assert race.best is None


def test_disturbed_blocks_are_run_again_and_do_not_count():
    race = entered()
    plant = Plant(CURVE, foreign=lambda number: 3.0 if number in (8, 9) else 0.1)
    raced(race, plant)
    assert race.best == Setting(4)
    assert race.repeats == 1
    assert sum(race.standings.disturbed.values()) == 2


def test_repeating_ends_where_the_machine_is_like_that():
    race = entered()
    plant = Plant(CURVE, foreign=lambda number: 2.0 if number > 8 and number % 2 else 0.1)
    spent_s = raced(race, plant)
    assert race.repeats <= 6
    assert race.best == Setting(4)
    assert spent_s <= 31


def test_without_an_idle_core_it_measures_all_the_same_and_says_so():
    race = entered()
    raced(race, Plant(CURVE, foreign=lambda number: 3.5, noise=0.05))
    assert race.crowded
    assert race.repeats == 0
    assert race.best == Setting(4)


def test_a_small_budget_ends_soon_with_what_there_is():
    race, plant = entered(), Plant(CURVE)
    entries = race.ask(0.5)
    assert entries is not None
    assert entries[0].setting == BASE
    race.tell([plant.run(entry) for entry in entries[:2]])
    assert race.ask(0.0) is None
    assert race.stopped == "budget"
    assert race.best in {each.setting for each in entries[:2]}


def test_newcomers_are_compared_through_those_who_stayed():
    race = entered(workers(0, 2, 3))
    plant = Plant(CURVE | {Setting(5): 3.0})
    raced(race, plant)
    assert race.best == Setting(3)
    assert race.join([Setting(3), Setting(4), Setting(5)]) == (Setting(4), Setting(5))
    raced(race, plant)
    assert race.best == Setting(5)
    points = {each.setting: each for each in race.points()}
    assert 0.25 < points[Setting(5)].ratio.middle < 0.36
    assert points[BASE].ratio.middle == 1.0


def test_the_same_seed_asks_for_the_same_rounds():
    one, other = Plant(CURVE), Plant(CURVE)
    raced(entered(seed=4), one)
    raced(entered(seed=4), other)
    assert one.blocks == other.blocks


def test_slow_batches_make_few_and_not_long_blocks():
    slow = {Setting(0): 1500.0, Setting(2): 800.0}
    race, plant = entered(slow), Plant(slow)
    raced(race, plant, budget_s=40)
    assert all(each.least * slow[each.setting] <= 3100 for each in race._entries(list(slow), 10.0))


def test_a_replay_does_not_overrule_what_was_measured_surely():
    times = {1: (0.30, 0.52), 2: (0.33, 0.48), 3: (0.29, 0.75), 4: (0.31, 0.41), 5: (0.30, 0.60)}
    blocks = [
        CountedBlock(number, Block(setting, 100, int(100 * ms * 1e6), 0))
        for number, pair in times.items()
        for setting, ms in zip((BASE, Setting(2)), pair, strict=True)
    ]
    standings = Standings(blocks, BASE, {BASE: 276e3, Setting(2): 110e3})
    assert standings.ratio(Setting(2), BASE).low > 1.0
    assert standings.choice() == BASE


def test_a_replay_weighs_in_where_blocks_say_little_and_not_where_they_refute_it():
    two, four = Setting(2), Setting(4)

    def pulled(noise: float, replayed: float) -> float:
        """How much of the way from what was measured to what was replayed."""
        race = entered({BASE: 10.0, two: 5.0, four: 5.0})
        race.expected.update({BASE: 10.0, two: 1.0, four: replayed})
        plant = Plant({BASE: 10.0, two: 5.0, four: 5.0}, noise=noise, mood=0.0)
        for _ in range(3):
            race.tell([plant.run(RaceEntry(each, 0.2, 4)) for each in (BASE, two, four)])
        measured = math.log(race.standings.ratio(four, two).middle)
        return (math.log(race.standings.likely(four, two)) - measured) / (math.log(replayed) - measured)

    assert 0.2 < pulled(0.3, 0.8) < 1.0
    assert 0.0 <= pulled(0.005, 0.98) < 0.05
    assert pulled(0.02, 0.2) == 0.0
