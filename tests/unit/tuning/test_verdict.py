"""What is said, and that it is said plainly."""

from __future__ import annotations

from dataclasses import replace

from stoker._runtime.simulation.point import Interval, Point
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.tune.model.verdict import VerdictCase, described, gain_of, say

TORCH = Setting(2, prefetch=2, engine="torch")
FOUR = Setting(4, prefetch=2)
MS = 1e6


def point(
    setting: Setting, ratio: float, *, cpu_ms: float = 4.0, memory: int = 1 << 20, failure: str = ""
) -> Point:
    times = Interval(10 * MS * ratio, 9 * MS * ratio, 11 * MS * ratio)
    near = Interval(ratio, ratio * 0.95, ratio * 1.05)
    return Point(setting, times, near, 0.5, cpu_ms * MS, memory, 0 if failure else 5, failure=failure)


CASE = VerdictCase(
    TORCH,
    FOUR,
    points=(point(TORCH, 1.0), point(FOUR, 0.6), point(Setting(6, prefetch=2), 0.7)),
    host=Host(4.0, "this machine has 4 CPUs", 4),
    limits=(
        "a batch takes 16 ms of CPU time in all, and there are 4 CPUs",
        "the training process is at work for 1 ms per batch",
    ),
    regime="batches compute for 98% of their time",
)


def test_a_change_is_told_with_its_gain_and_its_reason():
    said = say(CASE)
    assert (
        said.verdict
        == "Take stoker's loader with 4 workers instead of torch's with 2 workers: 40% less time a step."
    )
    assert said.why[0] == "A batch takes 16 ms of CPU time in all, and there are 4 CPUs."
    assert said.why[1] == "Batches compute for 98% of their time."
    assert said.limit == "the training process is at work for 1 ms per batch"
    assert said.gain is not None
    assert 0.3 < said.gain.low < said.gain.middle < said.gain.high < 0.5


def test_debugging_is_one_line():
    assert sum("num_workers=0" in each for each in say(CASE).why) == 1


def test_what_is_not_separated_is_said():
    said = say(replace(CASE, rivals=(Setting(3, prefetch=2), Setting(6, prefetch=2))))
    assert "3 workers and 6 workers may be as good (not separated)" in said.verdict


def test_many_rivals_are_not_all_named():
    many = tuple(Setting(count, prefetch=each) for count in (3, 5, 6, 7) for each in (2, 4))
    assert (
        "; 3 workers, 5 workers, 6 workers and others may be as good"
        in say(replace(CASE, rivals=many)).verdict
    )
    assert "; 3 workers and 5 workers may be as good" in say(replace(CASE, rivals=many[:4])).verdict


def test_a_baseline_that_is_surely_slower_is_not_called_as_good():
    case = replace(CASE, rivals=(TORCH, Setting(4, prefetch=8), Setting(6, prefetch=2)))
    assert "; 6 workers may be as good (not separated)" in say(case).verdict
    near = replace(case, points=(point(TORCH, 1.0), point(FOUR, 0.95)))
    assert "; 2 workers and 6 workers may be as good" in say(near).verdict


def test_data_that_is_no_problem():
    said = say(
        replace(
            CASE,
            chosen=TORCH,
            points=(point(TORCH, 1.0),),
            stopped="not the bottleneck",
            ceiling=0.012,
            demand=Demand(50_000_000),
        )
    )
    assert "Data is not your problem" in said.verdict
    assert "1.2%" in said.verdict
    assert "Leave it as it is (2 workers)" in said.verdict
    assert "50 ms" in said.why[0]
    assert not any("num_workers=0" in each or "compute" in each for each in said.why[2:])
    assert said.limit == ""


def test_nothing_measured():
    said = say(
        VerdictCase(
            Setting(0),
            Setting(3, prefetch=2),
            loader=False,
            host=CASE.host,
            failure="no batch could be made: boom.",
        )
    )
    assert (
        said.verdict
        == "Nothing was measured (no batch could be made: boom); a safe setting for this machine is 3 workers."
    )
    assert said.gain is None
    assert "By the machine alone: this machine has 4 CPUs" in said.why[0]
    assert "interrupted" in say(VerdictCase(TORCH, TORCH, stopped="interrupted")).verdict


def test_what_one_worker_showed_is_an_answer_where_nothing_was_compared():
    case = replace(CASE, points=(), work=Work(8, (30_000_000,), (1_000_000,)), stopped="interrupted")
    said = say(case)
    assert said.verdict == (
        "Nothing was compared (it was interrupted); a replay of one worker's batches suggests 4 workers."
    )
    assert said.why == (
        "A batch takes 16 ms of CPU time in all, and there are 4 CPUs.",
        "Batches compute for 98% of their time.",
    )
    assert said.gain is None
    failed = say(replace(case, stopped="failed", failure="workers die"))
    assert "a safe setting for this machine" in failed.verdict


def test_keeping_is_told_as_such():
    same = (point(TORCH, 1.0), point(FOUR, 0.99), point(Setting(6, prefetch=2), 1.2))
    said = say(replace(CASE, chosen=TORCH, points=same))
    assert said.verdict == "Keep 2 workers: none of 2 other settings is faster by more than 3%."
    assert any("A change needs a reason" in each for each in said.why)
    alone = say(replace(CASE, chosen=TORCH, points=same[:1]))
    assert alone.verdict == "Keep 2 workers: there was no time to compare it with anything (not separated)."
    assert not replace(CASE, chosen=TORCH, points=same[:1]).separated(None)


def test_as_fast_and_cheaper():
    base = Setting(16, prefetch=2)
    points = (point(base, 1.0, cpu_ms=8.0), point(FOUR, 1.0, cpu_ms=4.0))
    said = say(replace(CASE, baseline=base, points=points))
    assert said.verdict == "Take 4 workers instead of 16 workers: as fast, with 50% less CPU time."


def test_a_dataset_has_no_setting_to_be_replaced():
    case = replace(CASE, baseline=Setting(0), loader=False, points=(point(Setting(0), 1.0), point(FOUR, 0.3)))
    assert say(case).verdict == "Take 4 workers rather than no workers: 70% less time a step."


def test_ranks_caps_and_headspace():
    host = Host(4.0, "divided by 8 local ranks", 32, ranks=8)
    said = say(replace(CASE, host=host, capped=True, most="each takes 2 GiB of memory", ceiling=0.55))
    assert any("8 ranks share 32 CPUs, 4 for each" in each for each in said.why)
    assert any(each.startswith("Nothing beyond 4 workers was tried: each takes 2 GiB") for each in said.why)
    assert any("would save 55%" in each for each in said.why)


def test_warnings_say_where_a_result_does_not_hold():
    told = " ".join(say(replace(CASE, crowded=True, stream=True, asks_worker=False, batches=3)).warnings)
    assert "no CPU idle" in told
    assert "whole stream" in told
    assert "3 batches" in told
    failed = replace(CASE, points=(*CASE.points, point(Setting(8), 1.0, failure="it crashed.")))
    assert "Could not be run: 8 workers (it crashed)." in say(failed).warnings


def test_words_for_settings():
    assert described(Setting(0)) == "no workers"
    assert described(Setting(1)) == "1 worker"
    assert described(Setting(8, executor="thread")) == "8 threads as workers"
    assert described(Setting(2, threads=8)) == "2 workers with 8 threads each"
    assert described(Setting(1, threads=8)) == "1 worker with 8 threads"


def test_a_baseline_that_failed_gives_no_gain():
    case = replace(CASE, points=(point(TORCH, 1.0, failure="it raised"), point(FOUR, 0.6)))
    assert gain_of(case) is None
    assert "could not be compared" in say(case).verdict
