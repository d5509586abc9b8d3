"""Which cause is named, by which numbers, and who is said to have had the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker._record.causes.causes import Causes, find_causes
from stoker._record.causes.contention import Measurement, culprit, parent_cpu_ns
from stoker._record.causes.reclassify import median_us
from stoker._record.causes.thresholds import BANDWIDTH
from stoker._record.schema import Concurrency, SlowestSample
from tests.unit.records import MS, SECOND, Waits, loader, machine, worker

LATE = [0] * 13 + [100]
"""Wake-ups about 6 ms late."""


def _settled(waits_s: Waits, facts: dict | None = None, **changed) -> Causes:
    return find_causes(loader(waits_s, **changed), machine(**(facts or {})))


@pytest.mark.parametrize(
    ("stage", "cause"),
    [
        ("fetch", "io"), ("fetch", "compute"), ("collate", "compute"), ("plan", "parent"), ("open", "parent"), ("wake", "parent"),
        ("start", "start_up"), ("fetch", "head_of_line"), ("fetch", "unknown"),
    ],
)  # fmt: skip
def test_the_cause_with_most_of_the_wait_is_named(stage, cause):
    others_s = {("hand_over", 1, "io"): 0.1, ("queue", 1, "parent"): 0.1}
    found = _settled({(stage, 0, cause): 0.5, **others_s}, totals={"epochs": 2})
    assert found.cause == cause
    assert found.culprit is None
    assert sum(part.ns for part in found.parts) == found.wait_ns == 700 * MS


def test_parts_of_several_workers_are_one():
    found = _settled({("fetch", 0, "io"): 0.2, ("fetch", 1, "io"): 0.3})
    assert [(part.stage, part.cause, part.ns) for part in found.parts] == [("fetch", "io", 500 * MS)]


def test_wait_that_nobody_is_blamed_for_is_unknown_and_not_left_out():
    found = _settled({("fetch", 0, "io"): 0.2}, totals={"wait_ns": SECOND})
    assert found.wait_ns == SECOND
    assert found.cause == "unknown"
    assert any("CPU times" in each for each in found.missing)


@pytest.mark.parametrize(
    ("wait_s", "severity"), [(0.01, "none"), (0.03, "low"), (0.1, "moderate"), (0.5, "high")]
)
def test_how_bad_it_is(wait_s, severity):
    found = _settled({("fetch", 0, "io"): wait_s}, step_s=1.0)
    assert found.severity == severity
    assert found.stall == pytest.approx(wait_s / (1 + wait_s))


def test_a_short_start_is_not_a_problem_of_the_data():
    start = {("start", -1, "start_up"): 0.1}
    assert _settled(start).severity == "none"
    assert _settled(start, totals={"epochs": 3}).severity == "moderate"
    assert _settled({("start", -1, "start_up"): 0.5}).severity == "high"


def test_a_start_that_is_paid_once_is_not_named_while_the_rest_is_slow_too():
    waits_s = {("start", -1, "start_up"): 0.5, ("fetch", 0, "io"): 0.2}
    assert _settled(waits_s).cause == "io"
    assert _settled(waits_s, totals={"epochs": 3}).cause == "start_up"
    assert _settled({**waits_s, ("fetch", 0, "io"): 0.03}).cause == "start_up"
    assert _settled({("start", -1, "start_up"): 0.5}, step_s=0.0).cause == "start_up"


def test_waits_behind_a_busy_accelerator_are_reported_and_no_stall():
    found = _settled({("fetch", 0, "io"): 0.5}, totals={"hidden_ns": 490 * MS}, step_s=0.5)
    assert (found.hidden_ns, found.exposed_ns) == (490 * MS, 10 * MS)
    assert found.stall == pytest.approx(0.01)
    assert found.severity == "none"


def test_an_accelerator_that_nobody_watched_is_said():
    found = _settled({("fetch", 0, "io"): 0.5}, {"accelerators": ["cuda:0"]})
    assert any("accelerator" in each for each in found.missing)
    assert not any("accelerator" in each for each in _settled({("fetch", 0, "io"): 0.5}).missing)


def test_threads_off_the_cpu_with_late_wake_ups_wait_for_the_gil():
    waits_s = {("fetch", 0, "io"): 0.5, ("fetch", 1, "compute"): 0.4, ("wake", -1, "parent"): 0.3}
    workers = [worker(place, cpu=0.3, runq=0.05) for place in range(2)]
    found = _settled(waits_s, executor="thread", workers=workers, totals={"wake_ns": LATE})
    assert found.cause == "gil"
    assert found.share("gil") == pytest.approx(0.8 / 1.2)
    assert {"late_wake_us", "off_share"} <= {each.code for each in found.evidence}


@pytest.mark.parametrize(
    ("executor", "wakes", "cpu", "gil"),
    [("process", LATE, 0.3, True), ("thread", [0, 100], 0.3, True), ("thread", LATE, 0.9, True), ("thread", LATE, 0.3, False)],
)  # fmt: skip
def test_without_threads_lateness_waiting_or_a_gil_it_is_io(executor, wakes, cpu, gil):
    workers = [worker(0, cpu=cpu)]
    found = _settled(
        {("fetch", 0, "io"): 0.5}, {"gil": gil}, executor=executor, workers=workers, totals={"wake_ns": wakes}
    )
    assert found.cause == "io"


def test_threads_that_fill_one_cpu_wait_for_the_gil_though_most_wake_ups_are_in_time():
    wakes = [0] * 7 + [80, 0, 0, 0, 0, 0, 20]
    waits_s = {("fetch", 0, "io"): 0.6, ("wake", -1, "parent"): 0.3, ("fetch", 0, "compute"): 0.1}
    for cpu, cause in ((0.31, "gil"), (0.1, "io")):
        crew = [worker(place, busy_s=2.0, cpu=cpu) for place in range(3)]
        found = _settled(waits_s, executor="thread", workers=crew, totals={"wake_ns": wakes})
        assert found.cause == cause


def test_others_that_use_no_cpu_are_not_named_for_taking_it():
    found = _starving(2, load={"busy_cpu_ns": 850 * MS, "own_cpu_ns": 800 * MS})
    assert found.cause == "compute"


def test_compute_that_costs_more_beside_others_is_memory_bandwidth():
    waits_s = {("fetch", 0, "compute"): 0.5}
    alone, together = Concurrency(1, 100, 1000 * MS), Concurrency(4, 400, 6000 * MS)
    found = _settled(waits_s, concurrency=[together, alone])
    assert found.cause == "bandwidth"
    (told,) = [each for each in found.evidence if each.code == "cpu_per_row_ratio"]
    assert (told.value, told.limit) == (1.5, BANDWIDTH)
    honest = _settled(waits_s, concurrency=[alone, Concurrency(4, 400, 4400 * MS)])
    assert honest.cause == "compute"


@pytest.mark.parametrize(
    "concurrency",
    [
        [],
        [Concurrency(4, 400, 6000 * MS)],
        [Concurrency(1, 5, 50 * MS), Concurrency(4, 400, 6000 * MS)],
        [Concurrency(3, 400, 4000 * MS), Concurrency(4, 400, 6000 * MS)],
        [Concurrency(1, 100, 100 * MS), Concurrency(2, 100, 900 * MS)],
        [Concurrency(1, 100, 1000 * MS), Concurrency(16, 400, 6000 * MS)],
    ],
    ids=[
        "nothing",
        "one side",
        "few rows",
        "too near",
        "more than two workers can take from each other",
        "more workers than CPUs",
    ],
)
def test_what_cannot_be_separated_is_called_compute_and_said(concurrency):
    found = _settled({("fetch", 0, "compute"): 0.5}, concurrency=concurrency)
    assert found.cause == "compute"
    assert any("not separated" in each for each in found.missing)


def _starving(count=2, *, facts=None, load=None, waits_s=None, **changed) -> Causes:
    workers = [worker(place, busy_s=2.0, cpu=0.2, runq=0.8, **changed) for place in range(count)]
    waits_s = waits_s or {("fetch", 0, "starved"): 0.8, ("fetch", 0, "compute"): 0.2}
    usual = {"wall_ns": 2 * SECOND, "own_cpu_ns": 800 * MS, "parent_cpu_ns": 0, "busy_cpu_ns": 8 * SECOND}
    return _settled(
        waits_s,
        {"cpus": 4, "usable": 4, **(facts or {})},
        workers=workers,
        num_workers=count,
        load={**usual, **(load or {})},
    )


def test_a_throttled_job_is_starved_by_its_quota_whatever_else_there_is():
    found = _starving(16, load={"quota_periods": 100, "throttled_periods": 40})
    assert (found.cause, found.culprit) == ("starved", "quota")
    assert [each.value for each in found.evidence if each.code == "throttled_share"] == [0.4]
    assert _starving(load={"quota_periods": 100, "throttled_periods": 3}).culprit == "neighbours"


def test_others_that_take_the_cpus_are_named():
    found = _starving(2)
    assert (found.cause, found.culprit) == ("starved", "neighbours")
    assert {"foreign_cpus", "wanted_cpus", "runq_share", "cpu_pressure"} <= {
        each.code for each in found.evidence
    }


def test_more_of_our_own_than_cpus_is_our_own_doing():
    crowd = {"busy_cpu_ns": 8 * SECOND, "own_cpu_ns": int(7.6 * SECOND)}
    assert _starving(16, load=crowd).culprit == "own"
    threads = _starving(4, load=crowd, threads=8, process_cpu_ns=int(3.2 * SECOND))
    assert threads.culprit == "own"
    (told,) = [each for each in threads.evidence if each.code == "wanted_cpus"]
    assert told.value == pytest.approx(32)
    assert told.limit == 4


def test_what_threads_use_is_the_training_process_s_time_already():
    crew = [worker(place, busy_s=2.0, cpu=0.25, runq=0.05) for place in range(4)]
    crowd = {"wall_ns": 2 * SECOND, "parent_cpu_ns": 2 * SECOND, "loop_runq_ns": 0}
    threads = loader({}, executor="thread", workers=crew, load=crowd)
    for gil, wanted in ((False, 4 * 0.3), (True, 1.0)):  # with a lock, they may be able to use one CPU
        evidence: list[Measurement] = []
        culprit(threads, machine(gil=gil), evidence, [])
        (told,) = [each for each in evidence if each.code == "wanted_cpus"]
        assert told.value == pytest.approx(wanted)
    alone = loader({}, executor="inline", workers=[worker(-1, busy_s=1.0, cpu=0.5)], load=crowd)
    assert parent_cpu_ns(alone) == 1500 * MS


def test_workers_that_crowd_only_now_and_then_are_still_our_own():
    found = _starving(8, load={"wall_ns": 20 * SECOND, "busy_cpu_ns": 4 * SECOND, "own_cpu_ns": 4 * SECOND})
    assert found.culprit == "own"


def test_a_hypervisor_that_gives_the_cpu_to_others_counts_as_neighbours():
    load = {"busy_cpu_ns": int(0.8 * SECOND), "steal_ns": 7 * SECOND}
    assert _starving(2, load=load).culprit == "neighbours"


def test_facts_that_are_missing_are_named_and_not_taken_for_zero():
    untold = {"busy_cpu_ns": None, "pressure_ns": None}
    found = _starving(2, facts={"quota": 2.0}, load=untold)
    assert found.culprit == "neighbours"
    assert any("other processes" in each for each in found.missing)
    assert any("throttled" in each for each in found.missing)
    assert "foreign_cpus" not in {each.code for each in found.evidence}
    assert _starving(2, facts={"usable": None}).culprit is None


def test_a_little_waiting_for_the_cpu_is_still_compute():
    waits_s = {("fetch", 0, "starved"): 0.1, ("fetch", 0, "compute"): 0.9}
    assert _starving(2, waits_s=waits_s).cause == "compute"


def test_a_starved_consumer_wakes_late_for_the_same_reason():
    waits_s = {("fetch", 0, "starved"): 0.4, ("fetch", 0, "compute"): 0.1, ("wake", -1, "parent"): 0.6}
    found = _starving(2, waits_s=waits_s)
    assert found.cause == "starved"
    assert found.stages("starved") == {"wake": 600 * MS, "fetch": 400 * MS}


def test_io_says_what_the_kernel_knows_of_disks():
    waits_s = {("fetch", 0, "io"): 0.5}
    told = {each.code: each for each in _settled(waits_s, load={"iowait_ns": SECOND}).evidence}[
        "iowait_share"
    ]
    assert "local storage" in told.text
    assert "no local disk" in {each.code: each for each in _settled(waits_s).evidence}["iowait_share"].text
    untold = _settled(waits_s, load={"iowait_ns": None})
    assert "the machine's I/O wait" in untold.missing
    assert any("cold and warm reads" in each for each in untold.missing)


def test_nothing_at_all_is_no_cause():
    found = _settled({}, step_s=0.0)
    assert (found.stall, found.cause, found.severity, found.parts) == (None, None, "none", ())


def test_median_of_a_histogram():
    assert median_us([]) is None
    assert median_us([0, 0, 0]) is None
    assert median_us([0, 1, 5, 1]) == 3.0
    assert median_us([4, 0, 4]) == 0.75


def test_a_worker_that_waits_for_its_own_threads_computes():
    busy = {"cpu": 0.3, "runq": 0.1, "busy_s": 2.0, "tasks": 20}
    waits_s = {("fetch", 0, "io"): 0.6, ("fetch", 0, "compute"): 0.3, ("fetch", 0, "starved"): 0.1}
    threaded = [worker(0, **busy, threads=4, process_cpu_ns=2 * SECOND)]
    assert _settled(waits_s, workers=threaded, num_workers=1).cause == "compute"
    for alone in (
        worker(0, **busy, threads=1, process_cpu_ns=600 * MS),
        worker(0, **{**busy, "cpu": 0.01}, threads=4, process_cpu_ns=60 * MS),
        worker(0, **{**busy, "tasks": 20_000}, threads=4, process_cpu_ns=2 * SECOND),
        worker(0, **busy, threads=None, process_cpu_ns=None),
        worker(0, **{**busy, "cpu": 0.1}, threads=4, process_cpu_ns=500 * MS),
    ):
        assert _settled(waits_s, workers=[alone], num_workers=1).cause == "io"


def test_a_training_process_without_a_cpu_is_starved_and_not_slow():
    waits_s = {("plan", -1, "parent"): 0.6, ("open", -1, "parent"): 0.2}
    busy = {"loop_cpu_ns": 200 * MS, "loop_runq_ns": 800 * MS, "busy_cpu_ns": 14 * SECOND}
    found = _settled(waits_s, load=busy)
    assert (found.cause, found.culprit) == ("starved", "neighbours")
    assert found.share("starved") == pytest.approx(0.8)
    assert found.wait_ns == 800 * MS
    for calm in ({**busy, "loop_runq_ns": 20 * MS}, {**busy, "loop_runq_ns": None}):
        assert _settled(waits_s, load=calm).cause == "parent"


def test_waits_for_a_few_slow_samples_are_theirs():
    waits_s = {("fetch", 0, "io"): 0.6, ("fetch", 0, "head_of_line"): 0.3}
    slow = [SlowestSample(61 * place, 300 * MS, 0, 1, place, 3, blamed_ns=250 * MS) for place in range(3)]
    found = _settled(waits_s, slowest=slow)
    assert found.cause == "head_of_line"
    assert found.share("head_of_line") == pytest.approx(0.75 / 0.9)
    assert found.wait_ns == 900 * MS
    usual = [replace(each, ns=1 * MS) for each in slow]
    assert _settled(waits_s, slowest=usual).cause == "io"


def test_torchs_loop_that_waits_for_threads_of_computing_workers_waits_for_compute():
    waits_s = {("open", -1, "parent"): 0.6, ("fetch", 0, "compute"): 0.3}
    load = {"loop_cpu_ns": 50 * MS, "loop_runq_ns": 5 * MS}
    busy = [worker(place, cpu=0.8, runq=0.2) for place in range(2)]
    found = _settled(waits_s, engine="torch", workers=busy, load=load)
    assert found.cause == "compute"
    parts = [found.share(cause) for cause in ("parent", "compute", "starved")]
    assert parts[0] < 0.12
    assert parts[1] == pytest.approx(0.7 / 0.9, abs=0.05)
    assert found.wait_ns == 900 * MS
    assert _settled(waits_s, engine="stoker", workers=busy, load=load).cause == "parent"
    assert _settled(waits_s, engine="torch", load=load).cause == "parent"
    assert (
        _settled(waits_s, engine="torch", workers=busy, load={**load, "loop_cpu_ns": 700 * MS}).cause
        == "parent"
    )


def test_what_recording_takes_is_waited_for_and_no_cause():
    found = _settled({("record", -1, "parent"): 0.3, ("fetch", 0, "io"): 0.2}, step_s=0.5)
    assert found.cause == "io"
    assert found.stall == pytest.approx(0.2)
    assert found.wait_ns == 500 * MS
    assert _settled({("record", -1, "parent"): 0.3}).severity == "none"
