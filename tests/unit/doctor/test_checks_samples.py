"""Samples and batches: every check finds its fault in the facts, and leaves alone what only looks like it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from stoker._record.finding import Finding
from stoker._tools.doctor.checks.process import stk304_cuda_in_worker
from stoker._tools.doctor.checks.samples import (
    stk401_ragged,
    stk402_none_sample,
    stk403_mixed_types,
    stk404_failing_sample,
    stk405_stop_iteration,
    stk406_unsendable_batch,
    stk407_view_bloat,
    stk408_tiny_tensors,
    stk409_batch_trip,
    stk410_local_exception,
    stk411_hanging_sample,
    stk412_deadly_sample,
)
from stoker._tools.doctor.facts.probe_failures import ProbeFailure, ProbeFailures
from stoker._tools.doctor.facts.round_trip import RoundTripFacts, StartMethodTrip
from stoker._tools.doctor.facts.samples import Difference, Leaf, SampleFacts, SampleFailure, Storage
from stoker._tools.doctor.facts.scan import ScanFacts
from stoker._tools.doctor.facts.stream import BrokenItem, StreamFacts, StreamReading
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts

LOADER = LoaderArguments(
    engine="torch", batch_size=4, num_workers=2, prefetch_factor=2, persistent_workers=False, pin_memory=False,
    drop_last=False, timeout_s=0.0, in_order=True, start_method="fork", sampler="RandomSampler",
    batch_sampler="BatchSampler", shuffle=True, has_set_epoch=False, replicas=None, own_collate=False, own_init=False,
    batches=25, samples=100, site="train.py:31",
)  # fmt: skip
TARGET = TargetFacts(
    name="data.py:train", kind="loader", dataset_class="data.Pictures", dataset_file="data.py", dataset_line=3, stream=False,
    length=100, has_getitems=False, loader=LOADER, assumed=False,
)  # fmt: skip
IMAGE = Leaf("['image']", "tensor", "float32", (3, 224, 224), 602112, 602112)
FINE = SampleFacts(
    indices=tuple(range(8)), leaves=(IMAGE, Leaf("['label']", "int")), batch_tensors=2, batch_rows=4
)
STACK = '  File "/home/me/data.py", line 12, in __getitem__\n    return 1 / 0'
MISSING = SampleFailure(4, "FileNotFoundError", "no such file: a.png", STACK, picklable=True)


def target(**loader: Any) -> TargetFacts:
    return replace(TARGET, loader=replace(LOADER, **loader))


def only(found: Iterable[Finding]) -> Finding:
    (finding,) = found
    return finding


def differing(what: str, first: str, second: str, *, collates: bool = False) -> SampleFacts:
    return replace(FINE, differences=(Difference(what, "['image']", first, second, 0, 7, collates),))


def test_a_sample_on_a_device_is_found_by_its_path() -> None:
    samples = replace(FINE, leaves=(replace(IMAGE, device="cuda"),))
    found = only(stk304_cuda_in_worker.examine(samples, TARGET))
    assert (found.code, found.severity, found.where) == ("STK304", "high", "sample['image']")
    refused = SampleFailure(
        3, "RuntimeError", "Cannot re-initialize CUDA in forked subprocess. To use", STACK, True
    )
    raised = only(stk304_cuda_in_worker.examine(replace(FINE, failures=(refused,)), TARGET))
    assert raised.numbers["index"] == 3
    assert ", in __getitem__ (data.py:12)" in raised.evidence
    assert not list(stk404_failing_sample.examine(replace(FINE, failures=(refused,)), TARGET))
    opened = only(stk304_cuda_in_worker.examine(replace(FINE, uses_accelerator=True), target(num_workers=0)))
    assert opened.severity == "low"


def test_samples_on_the_cpu_are_no_use_of_an_accelerator() -> None:
    assert not list(stk304_cuda_in_worker.examine(replace(FINE, failures=(MISSING,)), TARGET))


def test_shapes_that_do_not_go_together_are_told_with_both_indices() -> None:
    found = only(stk401_ragged.examine(differing("shape", "(3, 224, 224)", "(3, 180, 224)")))
    assert (found.code, found.where) == ("STK401", "sample['image']")
    assert "shape (3, 224, 224) at index 0 and (3, 180, 224) at index 7" in found.evidence
    assert (found.numbers["first_index"], found.numbers["second_index"]) == (0, 7)
    assert only(stk401_ragged.examine(differing("length", "3", "4"))).code == "STK401"


def test_shapes_that_a_collate_fn_pads_are_fine() -> None:
    assert not list(stk401_ragged.examine(differing("shape", "(3,)", "(4,)", collates=True)))
    assert not list(stk401_ragged.examine(differing("dtype", "int64", "float32")))


def test_none_is_found_as_a_sample_and_inside_one() -> None:
    samples = replace(FINE, nones=(3, 5))
    found = only(stk402_none_sample.examine(samples, TARGET))
    assert (found.code, found.where, found.numbers["nones"]) == ("STK402", "dataset[3]", 2)
    assert "2 samples of 8 that were made are None: at index 3, 5" in found.evidence
    ours = only(stk402_none_sample.examine(samples, target(engine="stoker")))
    assert ours.edit is not None
    assert (ours.edit.after, ours.edit.site) == ('on_bad_sample="replace"', "train.py:31")
    inside = only(stk402_none_sample.examine(differing("none", "tensor", "None"), TARGET))
    assert "sample['image'] is None at index 7 and a tensor at index 0" in inside.evidence


def test_none_that_somebody_drops_is_fine() -> None:
    samples = replace(FINE, nones=(3,))
    assert not list(stk402_none_sample.examine(replace(samples, none_collates=True), TARGET))
    skipping = target(engine="stoker", on_bad_sample="skip")
    assert not list(stk402_none_sample.examine(samples, skipping))


def test_types_that_fail_in_a_worker_are_serious_and_those_that_change_a_batch_a_word() -> None:
    mixed = differing("dtype", "int64", "float32")
    found = only(stk403_mixed_types.examine(mixed, TARGET))
    assert (found.code, found.severity, found.where) == ("STK403", "high", "sample['image']")
    assert "dtype int64 at index 0 and float32 at index 7" in found.evidence
    assert only(stk403_mixed_types.examine(mixed, target(engine="stoker"))).severity == "low"
    taken = differing("kind", "int", "float", collates=True)
    assert only(stk403_mixed_types.examine(taken, TARGET)).severity == "low"
    keys = differing("keys", "'mask', 'image'", "'image'")
    assert only(stk403_mixed_types.examine(keys, target(engine="stoker"))).severity == "high"
    objects = replace(FINE, leaves=(Leaf("[0]", "array", "object", (3,)),))
    assert only(stk403_mixed_types.examine(objects, TARGET)).where == "sample[0]"


def test_types_that_a_collate_fn_of_ones_own_takes_are_fine() -> None:
    taken = differing("kind", "int", "float", collates=True)
    assert not list(stk403_mixed_types.examine(taken, target(own_collate=True)))
    assert not list(stk403_mixed_types.examine(differing("shape", "(3,)", "(4,)"), TARGET))


def test_an_exception_is_told_with_its_index_and_line() -> None:
    samples = replace(FINE, failures=(MISSING, replace(MISSING, index=6)))
    found = only(stk404_failing_sample.examine(samples, TARGET))
    assert (found.code, found.where, found.numbers["failures"]) == ("STK404", "dataset[4]", 2)
    assert "FileNotFoundError: no such file: a.png, in __getitem__ (data.py:12)" in found.evidence
    assert "2 of 8 samples that were tried did (index 4, 6)" in found.evidence
    assert found.edit is None
    assert only(stk404_failing_sample.examine(samples, target(engine="stoker"))).edit is not None
    collating = replace(FINE, failures=(replace(MISSING, collating=True, index=0),))
    assert only(stk404_failing_sample.examine(collating, TARGET)).where == "collate_fn"


def test_exceptions_that_have_a_name_of_their_own_or_are_skipped_are_no_alarm() -> None:
    stopped = replace(FINE, failures=(replace(MISSING, kind="StopIteration"),))
    assert not list(stk404_failing_sample.examine(stopped, TARGET))
    ragged = replace(differing("shape", "(3,)", "(4,)"), failures=(replace(MISSING, collating=True),))
    assert not list(stk404_failing_sample.examine(ragged, TARGET))
    skipping = target(engine="stoker", on_bad_sample="skip")
    found = only(stk404_failing_sample.examine(replace(FINE, failures=(MISSING,)), skipping))
    assert (found.severity, found.edit) == ("low", None)


def test_an_end_of_iteration_is_found() -> None:
    samples = replace(FINE, failures=(replace(MISSING, kind="StopIteration", text=""),))
    found = only(stk405_stop_iteration.examine(samples, TARGET))
    assert (found.code, found.where) == ("STK405", "dataset[4]")
    assert "dataset[4] of 100 raised StopIteration" in found.evidence
    told = replace(MISSING, kind="RuntimeError", text="generator raised StopIteration")
    stream = replace(TARGET, stream=True, length=None)
    assert (
        only(stk405_stop_iteration.examine(replace(FINE, failures=(told,)), stream)).where
        == "item 4 of the stream"
    )


def test_other_exceptions_do_not_end_an_epoch_early() -> None:
    assert not list(stk405_stop_iteration.examine(replace(FINE, failures=(MISSING,)), TARGET))


GENERATOR = "batch['rows'] (generator): cannot pickle 'generator' object"
GRADIENT = "batch['x'] (Tensor): refusing to serialize non-leaf tensor which requires_grad"


def test_what_cannot_be_sent_is_named_by_its_place_in_the_batch() -> None:
    found = only(stk406_unsendable_batch.examine(replace(FINE, unsendable=(GENERATOR,)), TARGET))
    assert (found.code, found.severity, found.where) == ("STK406", "high", "batch['rows']")
    assert "forever" in found.evidence
    ours = only(
        stk406_unsendable_batch.examine(replace(FINE, unsendable=(GENERATOR,)), target(engine="stoker"))
    )
    assert ours.severity == "moderate"
    assert (
        "detach"
        in only(stk406_unsendable_batch.examine(replace(FINE, unsendable=(GRADIENT,)), TARGET)).advice
    )


def test_gradients_are_fine_in_stokers_loader() -> None:
    samples = replace(FINE, unsendable=(GRADIENT,))
    assert not list(stk406_unsendable_batch.examine(samples, target(engine="stoker")))
    assert not list(stk406_unsendable_batch.examine(FINE, TARGET))


def test_a_small_view_of_a_large_table_is_found() -> None:
    samples = replace(FINE, batch_storages=(Storage("[0]", 1, 40, 244 << 20), Storage("[1]", 1, 900, 1000)))
    found = only(stk407_view_bloat.examine(samples, TARGET))
    assert (found.code, found.severity, found.where) == ("STK407", "high", "batch[0]")
    assert "40 bytes of a storage of 244 MiB" in found.evidence
    assert (found.numbers["used_bytes"], found.numbers["storage_bytes"]) == (40, 244 << 20)


def test_views_that_show_most_of_it_or_travel_alone_are_fine() -> None:
    halves = replace(FINE, batch_storages=(Storage("[0]", 2, 200 << 20, 244 << 20),))
    assert not list(stk407_view_bloat.examine(halves, TARGET))
    small = replace(FINE, batch_storages=(Storage("[0]", 1, 40, 4096),))
    assert not list(stk407_view_bloat.examine(small, TARGET))
    large = replace(FINE, batch_storages=(Storage("[0]", 1, 40, 244 << 20),))
    assert not list(stk407_view_bloat.examine(large, target(engine="stoker")))
    assert not list(stk407_view_bloat.examine(large, target(num_workers=0)))


def test_many_small_tensors_are_counted() -> None:
    rows = tuple(Leaf(f"[{at}]", "tensor", "float32", (10,), 40, 40) for at in range(200))
    samples = replace(FINE, batch_tensors=200, batch_leaves=rows, batch_rows=200)
    found = only(stk408_tiny_tensors.examine(samples, TARGET))
    assert (found.code, found.numbers["tensors"], found.numbers["average_bytes"]) == ("STK408", 200, 40)
    assert not list(stk408_tiny_tensors.examine(samples, target(engine="stoker")))


def test_few_tensors_or_large_ones_are_fine() -> None:
    large = tuple(replace(IMAGE, path=f"[{at}]") for at in range(200))
    assert not list(stk408_tiny_tensors.examine(replace(FINE, batch_tensors=200, batch_leaves=large), TARGET))
    assert not list(stk408_tiny_tensors.examine(FINE, TARGET))


@pytest.mark.parametrize(
    ("trip", "words"),
    [
        (
            StartMethodTrip("fork", True, "lost", "TypeError: oh", seconds=4.0),
            "the worker is idle; the worker printed: TypeError: oh",
        ),
        (
            StartMethodTrip("fork", True, "hung", "", STACK, 4.0),
            "no batch came within 4 s; the worker hangs in __getitem__ (data.py:12)",
        ),
        (
            StartMethodTrip("spawn", True, "failed", "RuntimeError: received 0 items of ancdata"),
            "0 items of ancdata",
        ),
        (
            StartMethodTrip("fork", True, "changed", "batch[0]: dtype int64 became float32"),
            "dtype int64 became float32",
        ),
    ],
    ids=lambda value: value.outcome if isinstance(value, StartMethodTrip) else "",
)
def test_a_batch_that_does_not_arrive_is_told_as_it_went(trip: StartMethodTrip, words: str) -> None:
    found = only(stk409_batch_trip.examine(RoundTripFacts(trip.start_method, (trip,), 4), TARGET, FINE))
    assert found.code == "STK409"
    assert found.where == f"multiprocessing_context='{trip.start_method}'"
    assert words in found.evidence


def test_a_trip_that_arrived_was_only_judged_or_has_a_check_of_its_own_is_fine() -> None:
    def trips(*given: StartMethodTrip) -> RoundTripFacts:
        return RoundTripFacts("fork", given, 4)

    arrived, judged = (
        StartMethodTrip("fork", True, "arrived"),
        StartMethodTrip("spawn", False, "failed", "dataset: cannot pickle it"),
    )
    assert not list(stk409_batch_trip.examine(trips(arrived, judged), TARGET))
    lost = StartMethodTrip("fork", True, "lost", "TypeError: cannot pickle 'generator' object")
    assert not list(stk409_batch_trip.examine(trips(lost), TARGET, replace(FINE, unsendable=(GENERATOR,))))
    unsent = StartMethodTrip("spawn", True, "failed", "AttributeError: Can't pickle local object")
    assert not list(stk409_batch_trip.examine(trips(unsent), TARGET))
    assert not list(stk409_batch_trip.examine(trips(lost), target(engine="stoker")))


def test_what_a_sample_raises_everywhere_is_not_told_as_a_batch_that_does_not_arrive() -> None:
    raised = StartMethodTrip(
        "fork", True, "failed", "KeyError: Caught KeyError in DataLoader worker process 0."
    )
    trips = RoundTripFacts("fork", (raised,), 4)
    assert only(stk409_batch_trip.examine(trips, TARGET, FINE)).code == "STK409"
    failing = replace(FINE, failures=(replace(MISSING, kind="KeyError"),))
    assert not list(stk409_batch_trip.examine(trips, TARGET, failing))
    broken = StreamFacts((), StreamReading(5, True), broken=BrokenItem(5, "KeyError", "'a'", "ended"))
    assert not list(stk409_batch_trip.examine(trips, TARGET, FINE, broken))
    spent = RoundTripFacts(
        "spawn", (StartMethodTrip("spawn", True, "failed", "OSError: Too many open files"),), 4
    )
    assert only(stk409_batch_trip.examine(spent, TARGET, FINE, None, ScanFacts())).code == "STK409"
    assert not list(stk409_batch_trip.examine(spent, TARGET, FINE, None, ScanFacts(storages=60_000)))


def test_an_exception_that_cannot_leave_a_worker_is_found() -> None:
    samples = replace(FINE, failures=(replace(MISSING, kind="Broken", picklable=False), MISSING))
    found = only(stk410_local_exception.examine(samples, TARGET))
    assert (found.code, found.where, found.numbers["kind"]) == ("STK410", "dataset[4]", "Broken")


def test_exceptions_that_travel_are_fine() -> None:
    assert not list(stk410_local_exception.examine(replace(FINE, failures=(MISSING,)), TARGET))
    local = replace(FINE, failures=(replace(MISSING, picklable=False),))
    assert not list(stk410_local_exception.examine(local, target(engine="stoker")))


def test_a_dataset_alone_may_yet_get_a_collate_fn_for_what_torchs_does_not_take() -> None:
    alone = replace(TARGET, assumed=True)
    unstacked = SampleFailure(0, "TypeError", "found <class 'Graph'>", STACK, True, collating=True)
    for found in (
        only(stk401_ragged.examine(differing("shape", "(3,)", "(4,)"), alone)),
        only(stk402_none_sample.examine(replace(FINE, nones=(3,)), alone)),
        only(stk403_mixed_types.examine(differing("keys", "'a'", "'a', 'b'"), alone)),
        only(stk404_failing_sample.examine(replace(FINE, failures=(unstacked,)), alone)),
    ):
        assert found.severity == "low"
        assert "the loader's collate_fn" not in found.evidence


HUNG = ProbeFailure("hung", 5, "no answer for 10 s", STACK)
DEAD = ProbeFailure("died", 2, "killed by SIGSEGV", STACK)


def test_a_sample_that_hung_is_named_once_with_its_line() -> None:
    found = only(
        stk411_hanging_sample.examine(ProbeFailures((("samples", HUNG), ("growth", HUNG), ("samples", DEAD))))
    )
    assert (found.code, found.severity, found.where) == ("STK411", "high", "dataset[5]")
    assert found.evidence == (
        "dataset[5] did not come back: no answer for 10 s; it stands in __getitem__ (data.py:12)"
    )
    unknown = only(
        stk411_hanging_sample.examine(
            ProbeFailures((("speed", ProbeFailure("hung", None, "no answer for 10 s")),))
        )
    )
    assert (unknown.severity, unknown.where) == ("low", None)


def test_a_sample_that_waits_for_a_thread_that_forks_lack_is_told_as_that() -> None:
    found = only(
        stk411_hanging_sample.examine(ProbeFailures((("samples", replace(HUNG, lacking=("feeder",))),)))
    )
    assert (
        "in a forked process, which does not have the 1 other thread of this one (feeder)" in found.evidence
    )
    assert "worker_init_fn" in found.advice


def test_a_hang_in_the_standard_library_is_told_by_the_line_that_called_it() -> None:
    stack = (
        f'{STACK}\n  File "{os.path.join(os.path.dirname(os.__file__), "threading.py")}", line 327, in wait'
    )
    found = only(stk411_hanging_sample.examine(ProbeFailures((("samples", replace(HUNG, stack=stack)),))))
    assert found.evidence.endswith("it stands in __getitem__ (data.py:12)")


def test_a_long_order_that_torchs_sampler_lists_is_no_hanging_sample() -> None:
    stack = '  File "/venv/lib/python3.11/site-packages/torch/utils/data/sampler.py", line 182, in __iter__'
    failure = ProbeFailure("hung", None, "no answer for 10 s", stack=stack)
    assert not list(stk411_hanging_sample.examine(ProbeFailures((("samples", failure),))))
    own = replace(failure, stack=stack.replace("torch/utils/data", "mine"))
    assert only(stk411_hanging_sample.examine(ProbeFailures((("samples", own),)))).code == "STK411"


def test_a_sample_that_killed_or_ate_memory_is_named() -> None:
    found = only(stk412_deadly_sample.examine(ProbeFailures((("samples", DEAD), ("samples", HUNG)))))
    assert (found.code, found.where, found.numbers["index"]) == ("STK412", "dataset[2]", 2)
    assert found.evidence == "dataset[2] was killed by SIGSEGV in __getitem__ (data.py:12)"
    ate = ProbeFailure("ate memory", 7, "4.10 GiB of the 4.00 GiB it may take")
    assert (
        "dataset[7] took 4.10 GiB"
        in only(stk412_deadly_sample.examine(ProbeFailures((("samples", ate),)))).evidence
    )


@pytest.mark.parametrize("examine", [stk411_hanging_sample.examine, stk412_deadly_sample.examine])
def test_probes_that_came_back_are_no_probe_failure(
    examine: Callable[[ProbeFailures], Iterable[Finding]],
) -> None:
    assert not list(examine(ProbeFailures()))
