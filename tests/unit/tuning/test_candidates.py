"""Which settings are raced, by what one worker was seen to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.tune.model import candidates
from stoker._tools.tune.model.candidates import MOST, KnobContext, SettingBounds
from stoker._tools.tune.model.prior import prior, safe_workers, window_for

MS = 1_000_000
TORCH = Setting(2, prefetch=2, engine="torch")
HOST = Host(8.0, "this machine has 8 CPUs", 8, room_bytes=16 << 30, descriptors=1024)
NONE = Demand(0)


def work(batch_ms: float, off: float = 0.0, **options) -> Work:
    whole = int(batch_ms * MS)
    return Work(
        32, (whole,) * 16, (int(whole * (1 - off)),) * 16, parent_ns=MS // 10, batch_bytes=1 << 16, **options
    )


def raced(
    of: Work,
    *,
    demand: Demand = NONE,
    host: Host = HOST,
    baseline: Setting = TORCH,
    bounds: SettingBounds | None = None,
):
    known = prior(host, of, demand)
    return candidates.first(baseline, KnobContext(host, of, demand, known, bounds or SettingBounds()))


def test_the_baseline_comes_first_and_there_are_at_most_six():
    for of in (work(40), work(40, 0.97), work(0.5), work(40, 0.5, threads_gain=1.9)):
        found = raced(of)
        assert found[0] == TORCH
        assert 2 <= len(found) <= MOST
        assert len(set(found)) == len(found)
        assert all(each.prefetch for each in found if each.workers)


def test_work_that_computes_is_tried_around_the_cores():
    counts = sorted(each.workers for each in raced(work(40))[1:])
    assert any(6 <= each <= 9 for each in counts)
    assert max(counts) <= 12


def test_work_that_waits_is_tried_past_the_cores_and_with_threads():
    found = raced(work(40, 0.98))
    assert max(each.workers for each in found) > 8
    assert any(each.executor == "thread" for each in found)
    assert any(each.threads > 1 for each in found)


def test_with_a_demand_about_as_many_as_it_needs():
    found = raced(work(40), demand=Demand(25 * MS, source="step-ms"))
    assert {each.workers for each in found[1:]} & {2, 3}
    assert max(each.workers for each in found) <= 4


def test_tiny_batches_are_tried_without_workers():
    assert Setting(0) in raced(work(0.3))
    assert Setting(0) not in raced(work(200))


def test_threads_need_a_reason():
    assert not any(each.executor == "thread" for each in raced(work(40, threads_gain=1.0)))
    assert any(each.executor == "thread" for each in raced(work(40, threads_gain=1.9)))
    free = Host(8.0, machine_cpus=8, gil=False)
    assert any(each.executor == "thread" for each in raced(work(40, threads_gain=1.9), host=free))


def test_threads_are_no_choice_for_batches_in_kept_memory():
    """A collate_fn that fills one buffer again and again has to run on one thread at a time."""
    waits = work(40, 0.97)
    assert any(each.executor == "thread" for each in raced(waits))
    assert not any(each.executor == "thread" for each in raced(replace(waits, keeps_batches=True)))


def test_bounds_are_kept():
    stream = raced(work(40, 0.98), bounds=SettingBounds(threads=False, most=1))
    assert {each.workers for each in stream[1:]} <= {0, 1}
    assert all(each.executor == "process" and each.threads == 1 for each in stream)
    assert raced(work(40), baseline=Setting(0), bounds=SettingBounds(workers=False)) == (Setting(0),)


def test_what_the_loader_has_of_its_own_is_kept():
    own = Setting(2, prefetch=2, start_method="spawn", pin=True, engine="torch")
    found = raced(work(40), baseline=own)
    assert all(each.pin for each in found)
    assert all(each.start_method == "spawn" for each in found if each.workers and each.executor == "process")


def test_little_memory_means_few_workers_and_shallow_windows():
    tight = Host(8.0, machine_cpus=8, room_bytes=256 << 20)
    heavy = work(40, worker_bytes=32 << 20)
    assert max(each.workers for each in raced(heavy, host=tight)) <= 4
    large = Work(32, (40 * MS,) * 8, (40 * MS,) * 8, batch_bytes=32 << 20)
    assert window_for(Setting(2), tight, large, NONE).prefetch == 1


def test_batches_that_are_pulled_back_to_back_get_a_window_for_them():
    found = window_for(Setting(2), HOST, work(10), Demand(50 * MS, burst=8))
    assert found.window >= 8 + 2


def test_an_epoch_of_three_batches_has_three_workers_at_most():
    known = prior(HOST, work(40), NONE, batches=3)
    assert known.edge == 3
    assert "3 batches" in known.most_reason


def test_a_host_of_many_cores_is_capped_with_a_reason():
    known = prior(Host(192.0, machine_cpus=192), work(400), NONE)
    assert known.edge <= 32
    assert known.most_reason


@pytest.mark.parametrize(("cpus", "workers"), [(1.0, 1), (2.0, 1), (8.0, 7), (192.0, 16), (0.5, 1)])
def test_the_safe_answer_leaves_a_cpu(cpus, workers):
    assert safe_workers(Host(cpus)) == workers


class TestAround:
    def found(self, best: Setting, *others: Setting, of: Work | None = None, host: Host = HOST):
        of = of or work(40)
        known = prior(host, of, NONE)
        return candidates.around(best, {best, *others}, KnobContext(host, of, NONE, known, SettingBounds()))

    def test_the_best_at_the_edge_is_gone_beyond(self):
        best = Setting(8, prefetch=2)
        assert max(each.workers for each in self.found(best, Setting(5, prefetch=2))) > 8
        low = Setting(2, prefetch=2)
        assert min(each.workers for each in self.found(low, Setting(4, prefetch=2))) == 1

    def test_twice_as_many_where_they_wait(self):
        best = Setting(8, prefetch=2)
        assert 16 in {each.workers for each in self.found(best, Setting(5, prefetch=2), of=work(40, 0.98))}

    def test_gaps_are_filled(self):
        best = Setting(8, prefetch=2)
        counts = {each.workers for each in self.found(best, Setting(4, prefetch=2), Setting(12, prefetch=2))}
        assert counts & {5, 6, 7}
        assert 10 in counts

    def test_nothing_is_tried_twice_and_never_more_than_three(self):
        best, tried = Setting(4, prefetch=2), {Setting(4, prefetch=2)}
        for _ in range(12):
            new = self.found(best, *tried)
            assert len(new) <= 3
            assert not tried & set(new)
            tried |= set(new)
        assert not self.found(best, *tried)

    def test_without_workers_one_is_tried(self):
        assert self.found(Setting(0)) == (Setting(1, prefetch=2),)

    def test_pinning_only_with_an_accelerator(self):
        best, tried = Setting(1, prefetch=16), [Setting(2, prefetch=2)]
        with_one = Host(8.0, machine_cpus=8, accelerator="cuda")
        assert any(each.pin for each in self.found(best, *tried, host=with_one))
        assert not any(each.pin for each in self.found(best, *tried))

    def test_the_device_only_with_an_accelerator_and_instead_of_pinning(self):
        best, tried = Setting(1, prefetch=16, pin=True, engine="torch"), [Setting(2, prefetch=2)]
        with_one = Host(8.0, machine_cpus=8, accelerator="cuda")
        there = replace(best, pin=False, engine="stoker", extra=(("device", "auto"),))
        assert there in self.found(best, *tried, host=with_one)
        assert not any(each.extra for each in self.found(best, *tried))
        assert not any(each.pin for each in self.found(there, *tried, host=with_one))


def test_threads_in_workers_are_tried_with_the_workers_that_keep_the_cpus_at_work():
    two = Host(2.0, "this machine has 2 CPUs", 2, room_bytes=16 << 30, descriptors=1024)
    waits = Work(
        8, (28 * MS,) * 16, (4 * MS,) * 16, parent_ns=MS // 10, batch_bytes=1 << 16, threads_gain=1.0
    )
    assert {each.workers for each in raced(waits, host=two) if each.threads > 1} <= {3, 4}
    sleeps = Work(16, (80 * MS,) * 16, (MS // 10,) * 16, parent_ns=MS // 10, batch_bytes=1 << 16)
    with_step = raced(sleeps, host=two, demand=Demand(8 * MS))
    assert {each.workers for each in with_step if each.threads > 1} == {1}
