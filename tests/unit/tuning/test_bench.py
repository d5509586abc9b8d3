"""What a bench concludes from its blocks."""

from __future__ import annotations

import json

from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Host
from stoker._tools.tune.bench import advised, calm, crowded, said
from stoker._tools.tune.comparison import Comparison, Lane
from stoker._tools.tune.model.block import Block
from stoker._tools.tune.model.standings import CountedBlock, Standings

MS = 1_000_000
DEFAULT, ADVICE, TUNED = Setting(0, engine="torch"), Setting(4, engine="torch"), Setting(8, 4)


def block(setting: Setting, ms: float, runq: float = 0.0, foreign: float = 0.1) -> Block:
    return Block(setting, 10, int(10 * ms * MS), 0, runq_share=runq, foreign_cpus=foreign, job_cpu_ns=10 * MS)


def counted(times: dict[Setting, float], rounds: int = 5) -> list[CountedBlock]:
    return [
        CountedBlock(number, block(setting, ms * (1 + 0.002 * number)))
        for number in range(rounds)
        for setting, ms in times.items()
    ]


def lanes(standings: Standings) -> list[Lane]:
    names = {DEFAULT: ("torch's default", "yours"), ADVICE: ("the usual advice",), TUNED: ("stoker tuned",)}
    return [Lane(names[each], standings.point(each)) for each in names]


def verdict(**ms: float) -> str:
    times = {DEFAULT: ms["default"], ADVICE: ms["advice"], TUNED: ms["tuned"]}
    standings = Standings(counted(times), DEFAULT)
    return said(lanes(standings), standings)


def test_the_verdict_is_against_the_best_of_the_others_and_may_go_against_stoker():
    faster = "stoker tuned is 2.00 times as fast as the best of the others, the usual advice."
    assert verdict(default=9, advice=6, tuned=3) == faster
    equal = "stoker tuned and the usual advice are equally fast, as far as this comparison shows."
    assert verdict(default=9, advice=6, tuned=6) == equal
    assert (
        verdict(default=3, advice=6, tuned=6)
        == "torch's default is faster: stoker tuned takes 2.00 times as long."
    )
    nothing = Standings([], DEFAULT)
    assert said([], nothing) == "Nothing was run."
    assert said(lanes(nothing), nothing) == "stoker's tuned setting could not be run."


def test_blocks_in_which_others_had_the_cpu_are_set_aside_but_two_of_each_stay():
    calm_ones = [CountedBlock(number, block(TUNED, 3, 0.1)) for number in range(3)]
    hit = CountedBlock(3, block(TUNED, 30, 0.6))
    found = calm([*calm_ones, hit])
    assert [each.round for each in found if each.disturbed] == [3]
    assert not any(each.disturbed for each in calm([calm_ones[0], hit]))
    own = [CountedBlock(number, block(ADVICE, 3, 0.7)) for number in range(4)]
    assert not any(each.disturbed for each in calm(own))


def test_a_machine_without_an_idle_cpu_is_told_and_an_idle_one_is_not():
    host = Host(2.0, machine_cpus=2)
    assert crowded([CountedBlock(0, block(TUNED, 3, foreign=0.2))], host) == ()
    (told,) = crowded([CountedBlock(0, block(TUNED, 3, foreign=1.8))], host)
    assert "1.8 of 2 CPUs" in told
    assert crowded([], host) == ()


def test_the_usual_advice_pins_only_with_an_accelerator():
    plain, pinned = advised(Host(2.0)), advised(Host(2.0, accelerator="cuda"))
    assert (plain.engine, plain.pin, pinned.pin) == ("torch", False, True)
    assert plain.workers >= 1
    assert advised(Host(2.0), most=1).workers == 1
    assert plain.arguments()["persistent_workers"]


def test_a_comparison_is_plain_json():
    standings = Standings(counted({DEFAULT: 9, TUNED: 3}), DEFAULT)
    found = Comparison("train.py:loader", 32, tuple(lanes(standings)), "so", alike=True)
    told = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert (told["format"], told["version"], told["target"]) == ("stoker-bench", 1, "train.py:loader")
    assert [each["engine"] for each in told["lanes"]] == ["torch", "torch", "stoker"]
    assert told["lanes"][2]["arguments"]["num_workers"] == 8
    assert told["lanes"][0]["names"] == ["torch's default", "yours"]
    assert found.tuned is not None
    assert found.tuned.setting == TUNED
