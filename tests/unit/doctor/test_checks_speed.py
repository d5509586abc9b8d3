"""Threads of workers, and where the time of a batch goes: on facts made up by the test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker._tools.doctor.checks.host import stk202_few_descriptors
from stoker._tools.doctor.checks.process import stk307_oversubscription
from stoker._tools.doctor.checks.speed import (
    stk701_no_workers_needed,
    stk705_costly_samples,
    stk706_cold_epochs,
    stk707_stragglers,
)
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.speed import HotFunction, SlowIndex, SpeedFacts
from stoker._tools.doctor.facts.worker import WorkerFacts
from tests.unit.doctor.test_checks_growth import LOADER, TARGET

WORKER = WorkerFacts(
    samples=40, wall_s=0.5, cpu_s=1.4, main_cpu_s=0.4, threads_started=3, pools={"cv2": 4, "openblas": 4, "torch": 1},
    computing="cv2", usable_cpus=16, ranks=2,
)  # fmt: skip


def _target(**loader):
    return replace(TARGET, loader=replace(LOADER, **loader))


def test_threads_that_compute_in_more_workers_than_there_are_cpus_for():
    (found,) = stk307_oversubscription.examine(WORKER, TARGET)
    assert (found.code, found.severity, found.where) == ("STK307", "high", "cv2")
    assert "4 threads of cv2 × 8 workers × 2 local ranks = 64 threads for 32 CPUs" in found.evidence
    assert found.edit is not None
    assert (found.edit.kind, found.edit.after) == ("init", "cv2.setNumThreads(0)")
    blas = replace(WORKER, computing="openblas")
    (found,) = stk307_oversubscription.examine(blas, TARGET)
    assert found.edit is not None
    assert (found.edit.kind, found.edit.after) == (
        "environment",
        'os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")',
    )


@pytest.mark.parametrize(
    ("worker", "loader"),
    [
        # A pool that is configured for many threads and computes nothing.
        (replace(WORKER, threads_started=0, cpu_s=0.4, computing="", pools={"openblas": 4, "cv2": 1}), {}),
        # Threads that live and do nothing; few workers on many CPUs; a loader that holds them to one.
        (replace(WORKER, cpu_s=0.401, computing="", pools={"openblas": 4}), {}),
        (WORKER, {"num_workers": 4}),
        (WORKER, {"engine": "stoker"}),
        (WORKER, {"num_workers": 0}),
    ],
)
def test_threads_that_do_no_harm_are_not_found(worker, loader):
    assert list(stk307_oversubscription.examine(worker, _target(**loader))) == []


def test_opencv_that_has_not_begun_yet_is_worth_a_word():
    idle = replace(WORKER, threads_started=0, cpu_s=0.4, computing="")
    (found,) = stk307_oversubscription.examine(idle, TARGET)
    assert (found.severity, found.where) == ("low", "cv2")
    assert "OpenCV may use 4 threads in each of 8 workers: 32 for 16 CPUs" in found.evidence
    for loader in ({"num_workers": 4}, {"engine": "stoker"}):
        assert list(stk307_oversubscription.examine(idle, _target(**loader))) == []


TINY = SpeedFacts(
    rows=32, batches=48, inline_s=0.0001, fetch_s=0.00008, cpu_s=0.00008, queued_s=0.0, collate_s=0.00002, batch_bytes=1280,
    batch_tensors=1, workers=8, loader_s=0.0015, parent_s=0.0004, share_s=0.0001, sample_s=2.5e-6, sampled=1000, usable_cpus=8,
)  # fmt: skip


def test_batches_that_are_quicker_made_than_taken_need_no_workers():
    (found,) = stk701_no_workers_needed.examine(TINY, _target(persistent_workers=True))
    assert (found.code, found.severity) == ("STK701", "moderate")
    assert "0.1 ms without workers and 1.5 ms with 8" in found.evidence
    assert "however long a step is" in found.evidence
    assert found.gain is not None
    assert found.gain.share == pytest.approx(1 - 0.1 / 1.5)
    assert found.gain.at_most
    assert found.edit is not None
    assert (found.edit.before, found.edit.after) == ("num_workers=8", "num_workers=0")
    assert "leave out persistent_workers" in found.advice
    (unbatched,) = stk701_no_workers_needed.examine(
        replace(TINY, rows=1), _target(batch_size=None, batch_sampler="")
    )
    assert unbatched.evidence.startswith("what is taken at once takes 0.1 ms without workers")


def test_it_is_said_when_it_does_not_matter():
    hidden = replace(TINY, inline_s=0.01, loader_s=0.04)
    (found,) = stk701_no_workers_needed.examine(hidden, TARGET)
    assert (found.severity, found.edit) == ("low", None)
    assert "Behind steps that are longer than 30 ms workers hide more than they cost" in found.evidence
    assert found.advice.startswith("If a training step takes less than 30 ms, set num_workers=0")
    # Steps that are shorter than half a millisecond hardly exist.
    assert list(stk701_no_workers_needed.examine(replace(TINY, inline_s=0.001), TARGET)) == []
    (found,) = stk701_no_workers_needed.examine(replace(TINY, loader_s=0.0006), TARGET)
    assert found.severity == "low"
    assert "negligible" in found.evidence


def test_a_race_in_which_others_had_the_cpus_says_nothing_of_workers():
    hidden = replace(TINY, inline_s=0.01, loader_s=0.04, foreign_cpus=1.3)
    assert list(stk701_no_workers_needed.examine(hidden, TARGET)) == []
    assert list(stk701_no_workers_needed.examine(replace(hidden, foreign_cpus=0.1), TARGET))
    (always,) = stk701_no_workers_needed.examine(replace(TINY, foreign_cpus=1.3), TARGET)
    assert always.severity == "moderate", (
        "taking a batch costs the trainer more CPU time than making it, whoever has the rest"
    )


def test_workers_that_are_faster_are_needed():
    assert list(stk701_no_workers_needed.examine(replace(TINY, inline_s=0.04, loader_s=0.01), TARGET)) == []
    assert list(stk701_no_workers_needed.examine(replace(TINY, inline_s=0.0014), TARGET)) == []
    assert list(stk701_no_workers_needed.examine(replace(TINY, loader_s=None), TARGET)) == []
    assert list(stk701_no_workers_needed.examine(TINY, _target(num_workers=0))) == []


def test_workers_that_are_not_needed_need_not_persist_either():
    quick = SampleFacts(indices=(0,), leaves=(), sample_s=(1e-5,) * 8, collate_s=(1e-5,))
    short = _target(batches=10)
    assert list(stk706_cold_epochs.examine(short, quick)) != []
    assert list(stk706_cold_epochs.examine(short, quick, None, TINY)) == []


def test_files_that_samples_leave_open_reach_the_limit():
    machine = MachineFacts(descriptors=1024, descriptors_open=20)
    leaking = replace(WORKER, descriptors=64, descriptors_per_sample=1.0, left_open=("/data/a.bin",))
    (found,) = stk202_few_descriptors.examine(machine, TARGET, worker=leaking)
    assert (found.severity, found.where, found.numbers["samples"]) == ("high", "dataset", 960)
    assert "/data/a.bin" in found.evidence
    assert list(stk202_few_descriptors.examine(machine, TARGET, worker=WORKER)) == []


COSTLY = replace(
    TINY,
    inline_s=1.7, fetch_s=1.6, cpu_s=1.6, loader_s=None, sample_s=0.05, sample_bytes=600_000, length=100_000,
    hot=(
        HotFunction("PIL.Image.Image.resize", "data.py:41", 0.62),
        HotFunction("Pictures.__getitem__", "data.py:30", 0.2, own=True),
    ),
    available_bytes=16 << 30,
)  # fmt: skip


def test_computing_is_told_with_the_functions_it_goes_into():
    (found,) = stk705_costly_samples.examine(COSTLY, TARGET)
    assert (found.code, found.severity, found.where) == ("STK705", "moderate", "data.py:41")
    assert "8 CPUs make at most 5 batches (160 samples) a second" in found.evidence
    assert "62% into PIL.Image.Image.resize called from data.py:41" in found.evidence
    assert "20% into Python code of your own, Pictures.__getitem__ (data.py:30)" in found.evidence
    assert found.advice.startswith("Resize cheaper")
    assert "same every time" not in found.advice
    same = replace(COSTLY, repeatable=True)
    (found,) = stk705_costly_samples.examine(same, TARGET)
    assert "make all of them once (55.9 GiB) and read them from a file" in found.advice
    (found,) = stk705_costly_samples.examine(replace(same, length=1000), TARGET)
    assert "keep them in one array" in found.advice
    (found,) = stk705_costly_samples.examine(replace(same, length=1_000_000), TARGET)
    assert "same every time" not in found.advice


@pytest.mark.parametrize(
    ("function", "own", "advice"),
    [
        ("cv2.imread", False, "Decode less"),
        ("torch.Tensor.mul", False, "Leave samples as they are stored"),
        ("Pictures.__getitem__", True, "Replace Python loops"),
        ("json.loads", False, "Call json.loads less often"),
    ],
)
def test_what_dominates_decides_what_is_advised(function, own, advice):
    (found,) = stk705_costly_samples.examine(
        replace(COSTLY, hot=(HotFunction(function, "data.py:9", 0.7, own),)), TARGET
    )
    assert found.advice.startswith(advice)


def test_waiting_is_no_computing_and_a_busy_machine_does_not_hide_it():
    assert list(stk705_costly_samples.examine(replace(COSTLY, cpu_s=0.3), TARGET)) == []
    assert list(stk705_costly_samples.examine(TINY, TARGET)) == []
    assert len(list(stk705_costly_samples.examine(replace(COSTLY, fetch_s=4.0, queued_s=2.3), TARGET))) == 1


LATE = replace(
    TINY,
    sample_s=0.0005,
    sampled=900,
    slow=(SlowIndex(237, 0.05), SlowIndex(37, 0.048)),
    slow_share=0.01,
)


def test_stragglers_are_named_with_what_they_hold_up():
    (found,) = stk707_stragglers.examine(LATE, TARGET)
    assert (found.code, found.severity, found.where) == ("STK707", "moderate", "dataset[237]")
    assert "237 (50 ms), 37 (48 ms)" in found.evidence
    assert found.edit is not None
    assert found.edit.after == "prefetch_factor=5"
    (ample,) = stk707_stragglers.examine(LATE, _target(prefetch_factor=8))
    assert (ample.severity, ample.edit) == ("low", None)


def test_samples_that_differ_a_little_are_no_stragglers():
    assert list(stk707_stragglers.examine(replace(LATE, slow=()), TARGET)) == []
    assert list(stk707_stragglers.examine(replace(LATE, slow_share=0.3), TARGET)) == []
    assert list(stk707_stragglers.examine(replace(LATE, slow=(SlowIndex(237, 0.004),)), TARGET)) == []
    assert list(stk707_stragglers.examine(LATE, _target(engine="stoker"))) == []
