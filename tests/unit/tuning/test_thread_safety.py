"""Threads are raced and recommended only where they were found to leave the batches as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Work
from stoker._tools.tune.facts import ThreadSafety
from stoker._tools.tune.safety import left_out_sentence, may_use_threads, thread_trial
from stoker._tools.tune.session import ProbeLost
from tests.unit.tuning.simulated_blocks import MS, Plant
from tests.unit.tuning.test_search import COMPUTE, LOADER, STREAM, Fake, Law, measured, tuned

WAITS = Work(32, (40 * MS,) * 20, (MS,) * 20, parent_ns=MS // 10, batch_bytes=1 << 12)
PLAIN = Setting(2, engine="torch")
THREADS, INSIDE = Setting(8, prefetch=2, executor="thread"), Setting(2, prefetch=2, threads=8)
EQUAL, DIFFER, UNKNOWN = (ThreadSafety(safe, "rows 1, 2 differ") for safe in (True, False, None))


def fast_threads() -> Plant:
    """Any setting with threads is much faster than all others."""
    law = Law({each: 1.0 for count in range(1, 65) for each in _with_threads(count)})
    return Plant(law)


def _with_threads(count: int) -> list[Setting]:
    ahead = (None, 1, 2, 3, 4, 6, 8)
    found = [Setting(count, prefetch=each, executor="thread") for each in ahead]
    return found + [
        Setting(count, prefetch=each, threads=threads) for each in ahead for threads in (2, 8, 16, 32)
    ]


def asked(fake: Fake) -> list[str]:
    return [probe for probe, _ in fake.asked]


def test_threads_that_leave_the_batches_as_they_are_may_win():
    fake = Fake(work=[WAITS], plant=fast_threads(), safety=EQUAL)
    found = tuned(fake)
    assert found.recommended.shares
    assert asked(fake).count("thread_safety") == 1
    threads = [
        at
        for at, (probe, trial) in enumerate(fake.asked)
        if probe == "block" and Setting.from_dict(trial["setting"]).shares
    ]
    assert asked(fake).index("thread_safety") < threads[0]


@pytest.mark.parametrize(
    ("safety", "said"),
    [
        (DIFFER, "Threads were left out, because they would change the batches: rows 1, 2 differ."),
        (UNKNOWN, "Threads were not tried: rows 1, 2 differ."),
        (ProbeLost("it crashed"), "Threads were not tried: comparing their batches failed: it crashed."),
    ],
)
def test_other_threads_are_not_raced_not_named_and_not_recommended(safety, said):
    found = tuned(Fake(work=[WAITS], plant=fast_threads(), safety=safety))
    assert not any(each.shares for each in measured(found))
    assert not found.recommended.shares
    assert "thread" not in found.verdict
    assert said in found.warnings


@pytest.mark.parametrize("demand", [Demand(0), Demand(60 * MS, source="step-ms")])
@pytest.mark.parametrize("own", [THREADS, INSIDE])
def test_threads_that_change_the_batches_are_no_answer_where_the_target_uses_them(own, demand):
    """Also not where data is no bottleneck."""
    fake = Fake(replace(LOADER, setting=own), work=[WAITS], plant=fast_threads(), safety=DIFFER)
    found = tuned(fake, demand)
    assert not found.recommended.shares
    assert found.changed
    assert any("they change the batches" in each for each in found.warnings)


@pytest.mark.parametrize("budget_s", [8.0, 45.0])
def test_a_target_that_uses_threads_keeps_them_where_nothing_speaks_against_it(budget_s):
    own = replace(LOADER, setting=THREADS)
    found = tuned(Fake(own, work=[WAITS], plant=fast_threads(), safety=UNKNOWN, budget_s=budget_s))
    assert found.recommended.shares
    assert any(each.startswith("Nothing shows that threads") for each in found.warnings)


def test_no_time_is_spent_where_threads_are_no_choice():
    for fake in (Fake(work=[COMPUTE]), Fake(STREAM, work=[WAITS])):
        tuned(fake)
        assert "thread_safety" not in asked(fake)


def test_ctrl_c_before_the_race_leaves_what_was_measured_of_the_baseline():
    fake = Fake(work=[WAITS], plant=fast_threads())
    tuned(fake, Demand(2 * MS, source="step-ms"))
    fake = Fake(work=[WAITS], plant=fast_threads(), interrupt_at=asked(fake).index("thread_safety") + 1)
    found = tuned(fake, Demand(2 * MS, source="step-ms"))
    assert found.stopped == "interrupted"
    assert measured(found) == {LOADER.setting} == {found.recommended}


def test_nobody_looked_is_no_proof():
    assert not may_use_threads(None, PLAIN)
    assert may_use_threads(EQUAL, PLAIN)
    assert not may_use_threads(DIFFER, THREADS)
    assert left_out_sentence(EQUAL, THREADS) == ""


def test_as_many_batches_are_compared_as_there_is_time_for():
    quick = Work(32, (MS,) * 20, (MS,) * 20)
    trial = thread_trial([PLAIN, THREADS], False, quick, 40.0)
    assert (trial["batches"], trial["rows"], trial["threads"]) == (32, None, 8)
    slow = Work(32, (3200 * MS,) * 20, (MS,) * 20)
    trial = thread_trial([INSIDE], False, slow, 40.0)
    assert trial["rows"] == 1
    assert 4 <= trial["batches"] < 32
    assert thread_trial([INSIDE], True, slow, 40.0)["batches"] == 4
    assert thread_trial([INSIDE], True, slow, 40.0)["rows"] is None
    assert thread_trial([PLAIN], False, quick, 40.0)["threads"] == 2
