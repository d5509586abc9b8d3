"""Traces with a known truth: what the devices waited for is found, and what they did not wait for is not blamed."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker._tools.render.terminal import MOST_LINES
from stoker._tools.report.profiler import ranks, screen
from stoker._tools.report.profiler.analysis import Parts
from stoker._tools.report.profiler.intervals import Intervals, union
from stoker._tools.report.profiler.ranks import Analysis
from stoker._tools.report.profiler.verdict import TraceVerdict, judge
from stoker.errors import TraceError
from tests.unit.profiled import Profiled

STEPS = 6


@pytest.fixture(name="analysed")
def _analysed(tmp_path: Path) -> Any:
    def analysed(*runs: Profiled) -> Analysis:
        found = ranks.read([run.write(tmp_path / f"{place}.pt.trace.json") for place, run in enumerate(runs)])
        for each in found.ranks:
            assert min(getattr(each.parts, name) for name in Parts.__dataclass_fields__) >= 0
        return found

    return analysed


def shares(analysis: Analysis) -> dict[str, float]:
    verdict = judge(analysis)
    assert sum(each.share for each in verdict.shares) == pytest.approx(1)
    return {each.part: round(each.share, 2) for each in verdict.shares}


def codes(verdict: TraceVerdict) -> list[str]:
    return [each.code for each in verdict.findings]


def test_gaps_while_next_is_under_way_are_starvation(analysed) -> None:
    run = Profiled()
    for _ in range(STEPS):
        with run.step():
            run.next(8)
            run.launch(2)
    found = analysed(run)
    verdict = judge(found)
    found_shares = shares(found)
    assert (found_shares["data"], found_shares["compute"]) == pytest.approx((0.79, 0.21), abs=0.02)
    assert verdict.severity == "high"
    assert verdict.headline.startswith("The device waits for data")
    assert codes(verdict) == ["data-starved"]
    assert "stoker profile" in verdict.findings[0].advice


def test_traces_of_old_versions_are_read_as_well(analysed) -> None:
    new, old = Profiled(), Profiled()
    old_names = {
        "kernel": "Kernel",
        "gpu_memcpy": "Memcpy",
        "cuda_runtime": "Runtime",
        "user_annotation": "Operator",
    }
    for run in (new, old):
        for _ in range(STEPS):
            with run.step():
                run.next(8)
                run.copy(1)
                run.launch(2)
                run.synchronize()
    for event in old.events:
        event["cat"] = old_names[event["cat"]]
        event["tid"] = f"stream {event['tid']}"
    del old.entries["baseTimeNanoseconds"]
    assert analysed(old).parts == analysed(new).parts
    assert judge(analysed(old)).data_share == judge(analysed(new)).data_share


def test_loading_that_the_device_does_not_notice_is_hidden(analysed) -> None:
    run = Profiled()
    for _ in range(STEPS):
        with run.step():
            run.next(2)
            for _ in range(4):
                run.launch(2)
    found = analysed(run)
    verdict = judge(found)
    # The window ends with the last step on the host; the device is behind all the while, and only waits for the first batch.
    assert found.ranks[0].call_ns == STEPS * 2_000_000
    assert verdict.hidden_ns == (STEPS - 1) * 2_000_000
    run = Profiled()
    run.launch(1000)  # work from before the first step
    for _ in range(STEPS):
        with run.step():
            run.next(2)
    verdict = judge(analysed(run))
    assert (verdict.data_share, verdict.severity, codes(verdict)) == (0, "none", ["not-data"])
    assert verdict.headline == "Data is not the problem (0.0% of the time)."


def test_many_short_kernels_are_launch_bound(analysed) -> None:
    run = Profiled()
    for _ in range(STEPS):
        with run.step():
            run.next(0.01)
            for _ in range(200):
                run.operation(0.004)
                run.launch(0.003)
    found = analysed(run)
    assert codes(judge(found)) == ["launch-bound"]
    assert "200 kernels a step" in judge(found).findings[0].evidence
    assert judge(found).headline.startswith("Data is not the problem")


@pytest.mark.parametrize("slow", [1, 5])
def test_launches_that_take_long_speak_for_a_full_host(analysed, slow) -> None:
    run = Profiled()
    for _ in range(STEPS):
        with run.step():
            run.next(0.01)
            for number in range(20):
                run.operation(0.02)
                run.launch(0.02, call_ms=0.005 if number % slow else 0.2 * slow)
    assert codes(judge(analysed(run))) == ["host-full"]


def test_without_devices_operations_that_are_now_quick_now_slow_do(analysed) -> None:
    full, fair = Profiled(), Profiled()
    for number in range(8):
        for run in (full, fair):
            with run.step():
                run.next(0.01)
                for place in range(20):
                    slow = (number + place) % 4 == 0 if run is full else number in (0, 5)
                    run.operation(3.0 if slow else 0.1)
    assert codes(judge(analysed(full))) == ["host-full"]
    assert codes(judge(analysed(fair))) == ["not-data"]  # a first step, and one that met something


def test_a_synchronisation_that_lets_the_device_run_dry(analysed) -> None:
    run = Profiled()
    for _ in range(STEPS):
        with run.step():
            run.launch(5)
            run.synchronize()
            run.python(2)
            run.next(0.01)
    found = analysed(run)
    assert shares(found)["sync"] == pytest.approx(2 / 7, abs=0.02)
    assert codes(judge(found)) == ["host-sync"]


def test_python_between_operations_is_the_hosts(analysed) -> None:
    run = Profiled()
    for _ in range(STEPS):
        with run.step():
            run.next(0.01)
            run.launch(5)
            run.python(8)
    verdict = judge(analysed(run))
    assert codes(verdict) == ["host-work"]
    assert "does not see" in verdict.findings[0].evidence


@pytest.mark.parametrize("pinned", [False, True])
def test_copies_count_when_no_kernel_runs_beside_them(analysed, pinned) -> None:
    alone, beside = Profiled(), Profiled()
    for _ in range(STEPS):
        with alone.step():
            alone.next(0.01)
            alone.copy(4, pinned=pinned)
            alone.launch(4)
            alone.python(7.9)
        with beside.step():
            beside.next(0.01)
            beside.copy(4, pinned=pinned, stream=20)
            beside.launch(8)
            beside.python(7.9)
    verdict = judge(analysed(alone))
    assert codes(verdict) == ["exposed-copy"]
    assert (verdict.findings[0].edit is None) == pinned
    assert "exposed-copy" not in codes(judge(analysed(beside)))


def test_gaps_before_work_that_was_launched_already_are_the_devices_own(analysed) -> None:
    run = Profiled()
    with run.step():
        run.next(0.01)
        for _ in range(50):
            run.launch(1, late_ms=0.5)
        run.next(75)
    found = shares(analysed(run))
    assert found["turnaround"] == pytest.approx(1 / 3, abs=0.02)
    assert found["data"] < 0.02


def test_memory_whose_floor_rises_is_growing(analysed) -> None:
    steady, growing = Profiled(), Profiled()
    for number in range(8):
        for run, kept in ((steady, 0), (growing, number * 5_000_000)):
            with run.step():
                run.memory(10**9 + kept)
                run.launch(5)
                run.memory(3 * 10**9 + random.Random(number).randint(0, 10**8))
                run.next(0.01)
                run.python(4.9)
    assert codes(judge(analysed(steady))) == ["not-data"]
    verdict = judge(analysed(growing))
    assert codes(verdict) == ["memory-growing"]
    assert "device 0 grows by 5 MB a step" in verdict.findings[0].evidence


def of_rank(rank: int, *, next_ms: float, world_size: int = 3) -> Profiled:
    """Steps of 12 ms: 2 of computing, and a collective that ends for all when the last rank has come."""
    run = Profiled(rank=rank, world_size=world_size)
    for _ in range(STEPS):
        with run.step():
            run.next(next_ms)
            run.launch(2)
            run.launch(10 - next_ms, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
            run.synchronize()
    return run


def test_ranks_that_wait_for_one_that_waits_for_data(analysed) -> None:
    found = analysed(of_rank(0, next_ms=1), of_rank(1, next_ms=1), of_rank(2, next_ms=8))
    assert found.late is not None
    assert (found.late.rank, found.late.part) == ("rank 2", "data")
    verdict = judge(found)
    assert verdict.headline == "The ranks wait 58% of the time for rank 2, which waits for data."
    assert codes(verdict)[0] == "late-rank"
    assert any("rank 2 67%" in line for line in verdict.evidence)
    even = analysed(of_rank(0, next_ms=1), of_rank(1, next_ms=1), of_rank(2, next_ms=1))
    assert even.late is None
    assert even.notes == []
    assert "3 ranks" in analysed(of_rank(0, next_ms=1)).notes[0]


def test_files_of_one_process_are_one_rank_and_those_of_several_are_several(tmp_path) -> None:
    for place in range(2):
        of_rank(0, next_ms=1, world_size=1).write(tmp_path / f"a.{place}.pt.trace.json.gz")
    (tmp_path / "notes.json").write_text("{}")
    found = ranks.read([tmp_path])
    assert len(found.ranks) == 1
    assert found.ranks[0].steps == 2 * STEPS
    plain = Profiled()
    with plain.step():
        plain.next(1)
    for name in ("rank0.json", "rank1.json"):
        plain.write(tmp_path / name)
    assert [each.rank for each in ranks.read([tmp_path / "rank1.json", tmp_path / "rank0.json"]).ranks] == [
        0,
        1,
    ]


def test_devices_of_one_process_are_parts_of_one_wall(analysed) -> None:
    run = Profiled()
    for _ in range(STEPS):
        with run.step():
            run.next(5)
            for run.device in (0, 1):
                run.launch(5)
    found = analysed(run)
    assert found.ranks[0].devices == 2
    assert found.parts.wall_ns == pytest.approx(2 * STEPS * 5e6, rel=0.01)


def test_a_loader_that_another_thread_calls_ahead_of_time_holds_nobody_up(analysed) -> None:
    run = Profiled()
    for _ in range(STEPS):
        with run.step():
            run.next(0.5)
            run.next(9, thread=4001)
            run.launch(1)
            run.python(9)
    assert shares(analysed(run))["data"] == pytest.approx(0.05, abs=0.02)
    alone = Profiled()
    for _ in range(STEPS):
        with alone.step():
            alone.next(9, thread=4001)
            alone.launch(1)
            alone.python(9)
    verdict = judge(analysed(alone))
    assert codes(verdict)[0] == "data-starved"
    assert "may only prefetch" in verdict.findings[0].advice


def test_without_a_loader_in_the_trace_its_share_is_not_known(analysed) -> None:
    run = Profiled()
    for _ in range(STEPS):
        run.launch(5)
        run.python(8)
    verdict = judge(analysed(run), price_per_hour=3.0)
    assert (verdict.data_share, verdict.severity, verdict.cost) == (None, "unknown", None)
    assert "not known" in verdict.headline
    assert codes(verdict) == ["host-work"]


def test_a_trace_without_devices_tells_the_loops_share(analysed) -> None:
    run = Profiled()
    for number in range(STEPS):
        with run.step():
            run.next(30 if number == 0 else 0.3, iterator="_SingleProcessDataLoaderIter")
            run.operation(6)
            run.python(1)
    found = analysed(run)
    verdict = judge(found, watts=100.0)
    assert not verdict.on_device
    assert shares(found) == pytest.approx({"data": 0.43, "compute": 0.49, "host": 0.08}, abs=0.01)
    assert "first batch" in verdict.findings[0].evidence
    assert str(verdict.findings[0].edit) == "num_workers=0  →  num_workers=4"
    assert verdict.cost is not None
    assert verdict.cost.idle == verdict.data_share


def test_a_screen_is_a_screen(analysed) -> None:
    found = analysed(*(of_rank(rank, next_ms=8 if rank == 2 else 1, world_size=20) for rank in range(12)))
    text = screen.render(judge(found, price_per_hour=2.5, watts=300))
    assert [line.split()[0] for line in text.splitlines() if line[:1].strip()] == [
        "Verdict",
        "Why",
        "Evidence",
        "Next",
    ]
    assert len(text.splitlines()) <= MOST_LINES
    assert max(map(len, text.splitlines())) <= 100
    data = screen.as_json(judge(found))
    assert (data["format"], data["version"]) == ("stoker-trace-verdict", 1)
    assert sum(each["share"] for each in data["shares"]) == pytest.approx(1)


def test_what_has_nothing_to_judge_says_so(tmp_path) -> None:
    with pytest.raises(TraceError, match="nothing to judge"):
        ranks.read([Profiled().write(tmp_path / "empty.json")])


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=40, deadline=None)
def test_parts_add_up_to_the_wall_whatever_is_in_the_trace(seed: int, tmp_path_factory) -> None:
    chance = random.Random(seed)
    run = Profiled()
    calls = [
        lambda: run.next(chance.random()), lambda: run.launch(chance.random(), stream=chance.randint(1, 3)),
        lambda: run.launch(chance.random(), "ncclKernel"), lambda: run.copy(chance.random(), stream=chance.randint(1, 3)),
        run.synchronize, lambda: run.python(chance.random()), lambda: run.operation(chance.random()),
    ]  # fmt: skip
    run.launch(1)
    for _ in range(chance.randint(1, 40)):
        chance.choice(calls)()
        run.device = chance.randint(0, 1)
    found = ranks.read([run.write(tmp_path_factory.getbasetemp() / "random.json")])
    parts = found.parts
    assert min(getattr(parts, name) for name in Parts.__dataclass_fields__) >= 0
    stamps = [(each["ts"], each["ts"] + each["dur"]) for each in run.events]
    window = max(ended for _, ended in stamps) - min(began for began, _ in stamps)
    assert parts.wall_ns == pytest.approx(window * 1000 * found.ranks[0].devices, abs=10)


pairs = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


def made(found: list[tuple[int, int]]) -> tuple[Intervals, set[int]]:
    """Intervals, and the same as a set of whole moments."""
    began, ended = (np.array([pair[place] for pair in found], dtype=np.int64) for place in range(2))
    return union(began, ended), {moment for pair in found for moment in range(*pair)}


def moments(found: Intervals) -> set[int]:
    ends = list(zip(found.began.tolist(), found.ended.tolist(), strict=True))
    assert all(began < ended for began, ended in ends)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(ends))
    return {moment for pair in ends for moment in range(*pair)}


@given(pairs, pairs, st.tuples(st.integers(0, 30), st.integers(0, 30)))
def test_intervals_are_sets_of_moments(first, second, window) -> None:
    (one, its), (other, others) = made(first), made(second)
    assert moments(one) == its
    assert one.total_ns == len(its)
    assert moments(one | other) == its | others
    assert moments(one & other) == its & others
    assert moments(one - other) == its - others
    inside = set(range(*window))
    assert moments(one.gaps(*window)) == inside - its
    assert moments(one.within(*window)) == inside & its
    asked = np.arange(31)
    held = {
        moment for moment, is_held in zip(asked.tolist(), one.hold(asked).tolist(), strict=True) if is_held
    }
    assert held == its | {moment + 1 for moment in its}
