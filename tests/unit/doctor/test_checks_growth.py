"""Copy-on-write, memory that ends, and the window in bytes: on facts made up by the test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stoker._host.cpus import Cpus
from stoker._record.finding import Finding
from stoker._tools.doctor.checks.memory import (
    stk601_copy_on_write,
    stk603_out_of_memory,
    stk604_window_bytes,
    stk607_worker_cache,
)
from stoker._tools.doctor.facts.growth import (
    Container,
    GrowingContainer,
    GrowthFacts,
    GrowthWindow,
    MemoryTrend,
    forecast,
)
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts

GIB, MIB = 1 << 30, 1 << 20

LOADER = LoaderArguments(
    engine="torch", batch_size=100, num_workers=8, prefetch_factor=None, persistent_workers=False, pin_memory=False,
    drop_last=False, timeout_s=0.0, in_order=True, start_method="fork", sampler="RandomSampler",
    batch_sampler="BatchSampler", shuffle=True, has_set_epoch=False, replicas=None, own_collate=False, own_init=False,
    batches=12_000, samples=1_200_000, site="train.py:31",
)  # fmt: skip
TARGET = TargetFacts(
    name="data.py:train", kind="loader", dataset_class="data.Pictures", dataset_file="data.py", dataset_line=3, stream=False,
    length=1_200_000, has_getitems=False, loader=LOADER, assumed=False,
)  # fmt: skip
ROWS = Container("dataset.rows", "list", 1_200_000, 6 * GIB, 0.99, 0.97)
STEADY = (GrowthWindow(500, 2_100_000, 0),) * 6
COPYING = GrowthFacts(
    warm_up=512, windows=STEADY, containers=(ROWS,), available_bytes=2 * GIB, copied_bytes=16_000_000
)


def _number(finding: Finding, name: str) -> float:
    value = finding.numbers[name]
    assert isinstance(value, int | float)
    return value


def _target(**loader):
    return replace(TARGET, loader=replace(LOADER, **loader))


def test_the_attribute_that_is_copied_is_named_with_the_step_at_which_memory_ends():
    (found,) = stk601_copy_on_write.examine(COPYING, TARGET)
    assert (found.code, found.severity, found.where) == ("STK601", "high", "dataset.rows")
    # 4200 bytes a sample: 2 GiB are gone after about 511,000 samples, a little later because pages are met again.
    assert 5270 < _number(found, "ends_at_step") < 5700
    assert "memory ends at step ~5," in found.evidence
    assert "of 12,000" in found.evidence
    assert (
        "97% of it pages of dataset.rows (list of 1,200,000 items, 6 GiB of Python objects)" in found.evidence
    )
    assert found.edit is not None
    assert (found.edit.kind, found.edit.site) == ("share", "train.py:31")


def test_it_ends_later_where_workers_persist_and_never_where_all_copies_fit():
    epoch = replace(COPYING, available_bytes=12 * GIB)
    (fits,) = stk601_copy_on_write.examine(epoch, TARGET)
    assert fits.severity == "moderate"
    assert fits.numbers["ends_at_step"] is None
    (later,) = stk601_copy_on_write.examine(epoch, _target(persistent_workers=True))
    assert later.severity == "high"
    assert _number(later, "ends_at_step") > 12_000
    assert "(epoch 4)" in later.evidence
    (ample,) = stk601_copy_on_write.examine(replace(COPYING, available_bytes=480 * GIB), TARGET)
    assert ample.severity == "low"


def test_an_order_without_shuffling_copies_a_part_of_the_pages_in_each_worker():
    (found,) = stk601_copy_on_write.examine(COPYING, _target(shuffle=False))
    assert found.numbers["worker_bytes"] == pytest.approx(6 * GIB / 8, rel=0.05)


def test_several_attributes_are_copied_together():
    both = replace(
        COPYING, containers=(replace(ROWS, explains=0.6), replace(ROWS, path="dataset.boxes", explains=0.38))
    )
    (found,) = stk601_copy_on_write.examine(both, TARGET)
    assert "98% of it pages of dataset.rows and dataset.boxes" in found.evidence
    assert found.numbers["object_bytes"] == 12 * GIB


def test_under_spawn_every_worker_has_its_copy_from_the_start():
    (found,) = stk601_copy_on_write.examine(COPYING, _target(start_method="spawn"))
    assert found.numbers["worker_bytes"] == 6 * GIB
    assert "from the start under spawn" in found.evidence


@pytest.mark.parametrize(
    "fine",
    [
        # The allocator warms up: much at first, then nothing.
        replace(COPYING, windows=(GrowthWindow(500, 9_000_000, 0), *(GrowthWindow(500, 8192, 0),) * 5)),
        # Steady, and of nothing that the dataset holds.
        replace(COPYING, containers=()),
        replace(COPYING, containers=(replace(ROWS, explains=0.1),)),
        # A list that is too small to matter, though all of it is copied.
        replace(COPYING, containers=(replace(ROWS, items=5000, object_bytes=400_000),)),
        # Memory of its own, which is STK603's.
        replace(COPYING, windows=(GrowthWindow(500, 0, 6_000_000),) * 6),
    ],
)
def test_what_only_looks_like_copying_is_not_found(fine):
    assert list(stk601_copy_on_write.examine(fine, TARGET)) == []


def test_without_workers_nothing_is_copied():
    assert list(stk601_copy_on_write.examine(COPYING, _target(num_workers=0))) == []


def test_a_cache_that_grows_until_memory_ends_is_named():
    growing = GrowthFacts(
        warm_up=512,
        windows=(GrowthWindow(500, 0, 6_000_000),) * 6,
        growing=(GrowingContainer("dataset.cache", 0, 3512), GrowingContainer("dataset.seen", 0, 2)),
        available_bytes=2 * GIB,
    )
    (found,) = stk603_out_of_memory.examine(growing, TARGET)
    assert (found.severity, found.where) == ("high", "dataset.cache")
    assert found.numbers["ends_at_step"] == -(-2 * GIB // 1_200_000)
    assert "dataset.cache went from 0 items to 3,512" in found.evidence
    # Its tensors may as well lie in memory that the parent had freed, which the worker then copies.
    reused = replace(growing, windows=(GrowthWindow(500, 6_000_000, 0),) * 6)
    (again,) = stk603_out_of_memory.examine(reused, TARGET)
    assert again.numbers == found.numbers
    # The same cache where all of it fits, one that is full, and a worker that only copies.
    assert list(stk603_out_of_memory.examine(replace(growing, available_bytes=100 * GIB), TARGET)) == []
    full = (GrowthWindow(500, 0, 6_000_000), GrowthWindow(500, 0, 3_000_000), *(GrowthWindow(500, 0, 0),) * 4)
    assert list(stk603_out_of_memory.examine(replace(growing, windows=full), TARGET)) == []
    assert list(stk603_out_of_memory.examine(COPYING, TARGET)) == []


def test_a_course_of_copies_comes_to_its_end_and_one_of_leaks_does_not():
    copies, leak = MemoryTrend(4096, 4096 * 1000), MemoryTrend(4096)
    assert copies.after(10) == pytest.approx(40_960, rel=0.01)
    assert copies.after(1e6) == pytest.approx(4096 * 1000)
    assert copies.reaches(copies.after(500)) == pytest.approx(500)
    assert copies.reaches(4096 * 1000) == float("inf")
    assert leak.after(1e6) == 4096e6
    told: dict[str, Any] = {"workers": 2, "batch": 10, "persistent": False, "available": 8192 * 50}
    assert forecast(leak, samples=1000, **told).ends_at == 10
    assert forecast(leak, samples=50, **told).ends_at is None
    assert forecast(leak, samples=None, **told).ends_at == 10


MACHINE = MachineFacts(
    cpus=Cpus(8, 8, 8, None, 1, ""), available_bytes=64 * GIB, shm_bytes=32 * GIB, shm_free_bytes=32 * GIB
)


def _samples(batch_bytes):
    return SampleFacts(indices=(0,), leaves=(), batch_bytes=batch_bytes)


def test_a_window_of_batches_that_does_not_fit_into_memory():
    target = _target(num_workers=16, prefetch_factor=4)
    (found,) = stk604_window_bytes.examine(replace(MACHINE, shm_free_bytes=None), _samples(600 * MIB), target)
    assert (found.code, found.severity, found.where) == ("STK604", "moderate", "prefetch_factor")
    assert found.numbers["window_bytes"] == 65 * 600 * MIB
    assert found.edit is not None
    assert found.edit.after == "prefetch_factor=2"
    # Four ranks on the machine take four times as much.
    ranks = replace(MACHINE, cpus=Cpus(2, 8, 8, None, 4, ""), shm_free_bytes=None)
    (found,) = stk604_window_bytes.examine(ranks, _samples(600 * MIB), target)
    assert found.severity == "high"
    # /dev/shm has room for one of them, not for four; what is too much for one alone is STK201's.
    shm = replace(ranks, shm_free_bytes=8 * GIB)
    (found,) = stk604_window_bytes.examine(shm, _samples(100 * MIB), _target(num_workers=16))
    assert (found.severity, found.where) == ("high", "/dev/shm")
    assert list(stk604_window_bytes.examine(shm, _samples(200 * MIB), _target(num_workers=16))) == []


def test_a_window_that_fits_is_not_found():
    assert list(stk604_window_bytes.examine(MACHINE, _samples(100 * MIB), TARGET)) == []
    assert list(stk604_window_bytes.examine(MACHINE, _samples(6000 * MIB), _target(engine="stoker"))) == []
    assert list(stk604_window_bytes.examine(MACHINE, _samples(6000 * MIB), _target(num_workers=0))) == []


def test_warm_up_is_not_extrapolated_and_a_leak_is():
    levelling = GrowthFacts(
        warm_up=8, windows=(GrowthWindow(9, 0, 9 * 9216),) * 6, available_bytes=20 * GIB, copied_bytes=0
    )
    assert list(stk603_out_of_memory.examine(levelling, _target(num_workers=8, samples=10_000_000))) == []
    swinging = tuple(GrowthWindow(9, 0, sign * 4 * MIB) for sign in (1, -1, 1, -1, 1, -1))
    assert not replace(levelling, windows=swinging).grows_steadily
    fading = tuple(GrowthWindow(9, 0, size * MIB) for size in (9, 8, 6, 4, 3, 3))
    assert (
        list(stk603_out_of_memory.examine(replace(levelling, windows=fading), _target(samples=10_000_000)))
        == []
    )
    leaking = replace(levelling, windows=(GrowthWindow(9, 0, 9 * MIB),) * 6)
    assert [each.severity for each in stk603_out_of_memory.examine(leaking, TARGET)] == ["high"]


def test_a_list_of_400_000_tuples_is_worth_a_finding_though_memory_does_not_end():
    rows = Container("dataset.samples", "list", 400_000, 60 * MIB, 0.99, 0.9)
    growth = replace(COPYING, containers=(rows,), available_bytes=24 * GIB)
    (found,) = stk601_copy_on_write.examine(
        growth, replace(_target(num_workers=4, samples=400_000), length=400_000)
    )
    assert (found.severity, found.where) == ("low", "dataset.samples")


CACHING = GrowthFacts(
    warm_up=100,
    windows=(GrowthWindow(50, 0, 50 * MIB),) * 6,
    growing=(GrowingContainer("dataset.seen", 0, 390), GrowingContainer("dataset.errors", 0, 3)),
    available_bytes=64 * GIB,
)


def test_a_cache_in_every_worker_is_named_with_what_it_holds():
    (found,) = stk607_worker_cache.examine(CACHING, _target(num_workers=4))
    assert (found.code, found.severity, found.where) == ("STK607", "moderate", "dataset.seen")
    assert "from 0 items to 390 while one worker fetched 400 samples" in found.evidence
    assert (
        "Each of 4 workers fills its own; a full one would take about 1.14 TiB in each worker"
        in found.evidence
    )
    assert "lost with the worker" in found.evidence
    assert "4.58 TiB in all 4" in found.evidence
    assert "stoker.cache(dataset)" in found.advice


def test_a_cache_that_outlives_the_epoch_is_not_called_lost():
    (found,) = stk607_worker_cache.examine(CACHING, _target(num_workers=1, persistent_workers=True))
    assert found.severity == "low"
    assert "lost" not in found.evidence


def test_ranks_have_workers_with_caches_of_their_own():
    (found,) = stk607_worker_cache.examine(replace(CACHING, ranks=2), _target(num_workers=4))
    assert found.numbers["bytes_of_all"] == pytest.approx(8 * _number(found, "bytes_per_worker"))


@pytest.mark.parametrize(
    ("growth", "workers"),
    [
        (replace(CACHING, growing=()), 4),
        (replace(CACHING, growing=(GrowingContainer("dataset.errors", 0, 40),)), 4),
        (CACHING, 0),
    ],
    ids=["nothing grew", "grew by few", "no workers"],
)
def test_what_does_not_grow_with_the_samples_is_no_cache(growth, workers):
    assert not list(stk607_worker_cache.examine(growth, _target(num_workers=workers)))
