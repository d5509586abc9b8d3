"""Order, randomness, streams, ranks and arguments: each check on facts that have the fault, and on facts that only look like it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker._tools.doctor.checks.memory import stk602_persistent_pair as stk602
from stoker._tools.doctor.checks.order import stk501_repeated_randomness as stk501
from stoker._tools.doctor.checks.order import stk502_unsharded_stream as stk502
from stoker._tools.doctor.checks.order import stk503_drop_last_loss as stk503
from stoker._tools.doctor.checks.order import stk504_stale_workers as stk504
from stoker._tools.doctor.checks.order import stk505_set_epoch as stk505
from stoker._tools.doctor.checks.order import stk506_unequal_ranks as stk506
from stoker._tools.doctor.checks.order import stk507_worker_dependent_randomness as stk507
from stoker._tools.doctor.checks.order import stk508_shared_iterator as stk508
from stoker._tools.doctor.checks.order import stk509_broken_generator as stk509
from stoker._tools.doctor.checks.order import stk510_wrong_length as stk510
from stoker._tools.doctor.checks.order import stk511_bad_sampler as stk511
from stoker._tools.doctor.checks.order import stk513_frozen_randomness as stk513
from stoker._tools.doctor.checks.speed import stk703_needless_pinning as stk703
from stoker._tools.doctor.checks.speed import stk704_pin_thread as stk704
from stoker._tools.doctor.checks.speed import stk706_cold_epochs as stk706
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.host.pinning import PinningFacts
from stoker._tools.doctor.facts.randomness import RandomnessFacts
from stoker._tools.doctor.facts.sampler import OutOfRangeIndex, SamplerFacts
from stoker._tools.doctor.facts.samples import Leaf, SampleFacts
from stoker._tools.doctor.facts.scan import ScanFacts
from stoker._tools.doctor.facts.stream import BrokenItem, StreamFacts, StreamReading
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts
from stoker._tools.probes.random_source import RandomSource

LOADER = LoaderArguments(
    engine="torch", batch_size=32, num_workers=2, prefetch_factor=None, persistent_workers=False, pin_memory=False,
    drop_last=False, timeout_s=0.0, in_order=True, start_method="fork", sampler="RandomSampler",
    batch_sampler="BatchSampler", shuffle=True, has_set_epoch=False, replicas=None, own_collate=False, own_init=False,
    batches=100, samples=3200, site="train.py:31",
)  # fmt: skip
TARGET = TargetFacts(
    name="data.py:train", kind="loader", dataset_class="data.Pictures", dataset_file="data.py", dataset_line=3, stream=False,
    length=3200, has_getitems=False, loader=LOADER, assumed=False,
)  # fmt: skip
STORED = RandomSource("dataset.transform.rng", "numpy.Generator", "stored")
GLOBAL = RandomSource("numpy.random", "numpy.RandomState", "global")
REPEATED = RandomnessFacts((0, 800, 1600, 2400), 4, False, True, True, True, True, (STORED,))
HEALTHY = replace(REPEATED, workers_equal=False, epochs_equal=False, sources=(GLOBAL,))


def _target(*, source="", stream=False, others=(), name="data.py:train", **loader):
    changed = replace(TARGET, loader=replace(LOADER, **loader), source=source, stream=stream, name=name)
    return replace(changed, others=tuple(replace(LOADER, **each) for each in others))


def test_a_stored_generator_that_repeats_is_named_and_reseeded():
    (found,) = stk501.examine(REPEATED, TARGET)
    assert (found.code, found.severity, found.where) == ("STK501", "high", "dataset.transform.rng")
    assert "4 samples made 4 times" in found.evidence
    assert "the same in 2 workers and 2 epochs" in found.evidence
    assert found.edit is not None
    assert (found.edit.kind, found.edit.site) == ("init", "train.py:31")
    assert "info.dataset.transform.rng.bit_generator.state = type(" in found.edit.after


@pytest.mark.parametrize(
    ("source", "statement"),
    [
        (RandomSource("dataset.parts[0]", "numpy.Generator", "stored"), "info.dataset.parts[0].bit_generator.state ="),
        (RandomSource("dataset.g", "torch.Generator", "stored"), "info.dataset.g.manual_seed(info.seed)"),
        (RandomSource("cv2", "cv2", "library"), "cv2.setRNGSeed(info.seed % 2**31)"),
    ],
)  # fmt: skip
def test_each_kind_of_generator_is_seeded_its_own_way(source, statement):
    (found,) = stk501.examine(replace(REPEATED, sources=(source,)), TARGET)
    assert found.edit is not None
    assert statement in found.edit.after


def test_repetition_by_epoch_alone_by_a_fixed_seed_and_without_a_generator():
    by_epoch = replace(REPEATED, workers_equal=False, sources=(GLOBAL,), own_init=True)
    (found,) = stk501.examine(by_epoch, TARGET)
    assert found.severity == "moderate"
    assert "2 epochs of the same worker" in found.evidence
    assert "worker_init_fn gives it a seed that does not change" in found.evidence
    (counter,) = stk501.examine(replace(REPEATED, sources=()), TARGET)
    assert (counter.severity, counter.where, counter.edit) == ("low", None, None)


def test_randomness_that_does_not_repeat_and_what_stoker_seeds_are_fine():
    stored_and_sound = replace(HEALTHY, sources=(STORED, GLOBAL))
    assert stored_and_sound.verdict == "healthy"
    assert not list(stk501.examine(stored_and_sound, TARGET))
    constant = replace(REPEATED, varies=False)
    assert constant.verdict == "deterministic"
    assert not list(stk501.examine(constant, TARGET))
    chance = replace(REPEATED, indices=(0,), times=2, sources=(GLOBAL,))
    assert not list(stk501.examine(chance, TARGET))
    assert not list(stk501.examine(REPEATED, _target(engine="stoker")))
    module = replace(REPEATED, sources=(RandomSource("data.RNG", "numpy.Generator", "module"),))
    (found,) = stk501.examine(module, _target(engine="stoker"))
    assert found.where == "data.RNG"


def test_numbers_that_depend_on_the_worker_are_worth_knowing_and_unseeded_ones_more():
    (found,) = stk507.examine(HEALTHY, TARGET)
    assert (found.code, found.severity) == ("STK507", "none")
    assert "numpy.random" in found.evidence
    assert not list(stk507.examine(HEALTHY, _target(engine="stoker")))
    (unseeded,) = stk507.examine(replace(HEALTHY, reproducible=False, sources=()), _target(engine="stoker"))
    assert unseeded.severity == "low"
    assert not list(stk507.examine(replace(HEALTHY, varies=False), TARGET))
    assert not list(stk507.examine(REPEATED, TARGET))


WHOLE = StreamFacts(
    (StreamReading(100, True), StreamReading(100, True)), StreamReading(100, True), 100, True, (0, 0, 1, 0)
)
SHARED_OUT = StreamFacts((StreamReading(52, True), StreamReading(51, True)), StreamReading(103, True))
ENDLESS = StreamFacts((StreamReading(20000, False), StreamReading(20000, False)), StreamReading(20000, False))


def test_a_stream_that_every_worker_reads_is_found_by_content_by_order_and_by_number():
    (found,) = stk502.examine(WHOLE, _target(stream=True))
    assert (found.code, found.severity, found.where) == ("STK502", "high", "data.Pictures.__iter__")
    assert "2 workers gave 200 items, 100 of them again, where the stream has 100" in found.evidence
    (endless,) = stk502.examine(replace(ENDLESS, repeated=20000, alike=True, example=(0, 3, 1, 3)), TARGET)
    assert "item 3 of worker 0 is item 3 of worker 1" in endless.evidence
    (cycle,) = stk502.examine(replace(ENDLESS, alike=True), TARGET)
    assert "in the same order" in cycle.evidence
    augmented = replace(WHOLE, repeated=0, alike=False, example=None)
    (by_number,) = stk502.examine(augmented, TARGET)
    assert by_number.numbers["alone"] == 100
    (ranks,) = stk502.examine(replace(SHARED_OUT, world=4, ranks_alike=True, world_known=True), TARGET)
    assert ranks.numbers["world"] == 4
    (later,) = stk502.examine(WHOLE, _target(stream=True, num_workers=0))
    assert later.severity == "low"


def test_a_shared_out_stream_and_one_of_equal_items_are_fine():
    assert not list(stk502.examine(SHARED_OUT, _target(stream=True)))
    assert not list(stk502.examine(ENDLESS, _target(stream=True)))
    only_mentions_ranks = replace(SHARED_OUT, world=2, ranks_alike=True)
    assert not list(stk502.examine(only_mentions_ranks, _target(stream=True)))
    twins = replace(SHARED_OUT, repeated=3, example=(0, 1, 1, 9))
    assert not list(stk502.examine(twins, _target(stream=True)))


def test_what_drop_last_loses_of_an_indexed_dataset():
    (nothing,) = stk503.examine(_target(drop_last=True, samples=20))
    assert (nothing.code, nothing.severity) == ("STK503", "high")
    assert nothing.edit is not None
    assert (nothing.edit.after, nothing.edit.kind) == ("drop_last=False", "argument")
    (much,) = stk503.examine(_target(drop_last=True, samples=95))
    assert (much.severity, much.numbers["lost"]) == ("moderate", 31)
    (same,) = stk503.examine(_target(drop_last=True, samples=3203, shuffle=False))
    assert same.severity == "low"
    assert "the same ones in every epoch" in same.evidence
    assert not list(stk503.examine(_target(drop_last=True, samples=3203)))
    assert not list(stk503.examine(_target(drop_last=True, samples=3200, shuffle=False)))
    assert not list(stk503.examine(_target(samples=20)))


def test_what_drop_last_loses_of_a_stream_in_every_worker():
    (found,) = stk503.examine(_target(stream=True, drop_last=True), SHARED_OUT)
    assert found.severity == "moderate"
    assert (found.numbers["batches"], found.numbers["lost"]) == (2, 20 + 19)
    assert "one worker would lose 7" in found.evidence
    short = StreamFacts((StreamReading(20, True), StreamReading(20, True)), StreamReading(40, True))
    (nothing,) = stk503.examine(_target(stream=True, drop_last=True), short)
    assert nothing.severity == "high"
    assert "no batch at all" in nothing.evidence
    (small,) = stk503.examine(_target(stream=True), SHARED_OUT)
    assert (small.severity, small.numbers["small_batches"], small.numbers["smallest"]) == ("low", 2, 19)
    unread = replace(ENDLESS, declared=60)
    (expected,) = stk503.examine(_target(stream=True, drop_last=True), unread)
    assert expected.severity == "high"


def test_full_batches_endless_streams_and_long_ones_lose_nothing():
    even = StreamFacts((StreamReading(64, True), StreamReading(64, True)), StreamReading(128, True))
    assert not list(stk503.examine(_target(stream=True, drop_last=True), even))
    assert not list(stk503.examine(_target(stream=True, drop_last=True), ENDLESS))
    assert not list(stk503.examine(_target(stream=True, drop_last=True), replace(ENDLESS, declared=10**6)))
    assert not list(stk503.examine(_target(stream=True, batch_size=None, drop_last=True), SHARED_OUT))
    long = StreamFacts((StreamReading(3210, True), StreamReading(3210, True)), StreamReading(6420, True))
    assert not list(stk503.examine(_target(stream=True, batch_size=32), long)), (
        "2 short batches of 202 harm nobody"
    )
    single = StreamFacts((StreamReading(3201, True), StreamReading(3201, True)), StreamReading(6402, True))
    (found,) = stk503.examine(_target(stream=True, batch_size=32), single)
    assert "batch of 1" in found.advice


SCRIPT = """
loader = DataLoader(train_set, num_workers=4, persistent_workers=True)
valid = DataLoader(valid_set, num_workers=2, persistent_workers=True)
for epoch in range(9):
    {statement}
    for batch in {loop}:
        step(batch)
"""


def _script(statement="pass", loop="loader"):
    return SCRIPT.format(statement=statement, loop=loop)


@pytest.mark.parametrize(
    "statement",
    ["train_set.set_epoch(epoch)", "train_set.crop = 128", "loader.dataset.transform.p += 0.1", "train_set.rows[0] = 1"],
)  # fmt: skip
def test_changes_that_persistent_workers_do_not_see(statement):
    target = _target(source=_script(statement), persistent_workers=True)
    (found,) = stk504.examine(target)
    assert (found.code, found.severity, found.numbers["line"]) == ("STK504", "high", 5)
    assert found.edit is not None
    assert found.edit.after == "persistent_workers=False"
    assert not list(stk504.examine(_target(source=_script(statement))))
    assert not list(
        stk504.examine(_target(source=_script(statement), persistent_workers=True, engine="stoker"))
    )


def test_changes_in_a_function_for_epochs_reach_no_worker_either():
    source = "def on_epoch_start(trainer, epoch):\n    trainer.train_loader.dataset.set_epoch(epoch)\n"
    (found,) = stk504.examine(_target(source=source, persistent_workers=True))
    assert found.numbers["line"] == 2


def test_changes_to_others_and_outside_of_loops_reach_whom_they_should():
    short_lived = "test = DataLoader(test_set, num_workers=2)\n" + _script("test.dataset.crop = 1")
    assert not list(stk504.examine(_target(source=short_lived, persistent_workers=True)))
    for statement in ("sampler.set_epoch(epoch)", "model.p = 1", "train_settings.crop = 1"):
        assert not list(stk504.examine(_target(source=_script(statement), persistent_workers=True)))
    before = "train_set.crop = 128\n" + _script()
    assert not list(stk504.examine(_target(source=before, persistent_workers=True)))
    assert not list(stk504.examine(_target(source="not python (", persistent_workers=True)))
    class_with_epochs = "class Pictures:\n    def set_epoch(self, epoch): ...\n" + _script()
    (reminder,) = stk504.examine(_target(source=class_with_epochs, persistent_workers=True))
    assert (reminder.severity, reminder.where) == ("low", "dataset.set_epoch")
    assert "through shared memory, and in no other way" in reminder.evidence


DISTRIBUTED = SamplerFacts("DistributedSampler", 0, 3200, repeats=True)


def test_epochs_in_the_same_order():
    (found,) = stk505.examine(DISTRIBUTED, _target(source=_script(), replicas=4))
    assert (found.code, found.severity, found.numbers["replicas"]) == ("STK505", "high", 4)
    (reminder,) = stk505.examine(DISTRIBUTED, _target(replicas=4))
    assert reminder.severity == "low"


def test_samplers_that_are_told_the_epoch_or_need_not_be():
    told = _target(source=_script("sampler.set_epoch(epoch)"), replicas=4)
    assert not list(stk505.examine(DISTRIBUTED, told))
    no_epochs = _target(source="for row in rows:\n    for cell in row: ...\n", replicas=4)
    assert [found.severity for found in stk505.examine(DISTRIBUTED, no_epochs)] == ["low"]
    framework = _target(source="import lightning as L\n" + _script(), replicas=4)
    assert not list(stk505.examine(DISTRIBUTED, framework))
    assert not list(stk505.examine(replace(DISTRIBUTED, repeats=False), _target(source=_script())))


def test_ranks_that_end_at_different_steps():
    ranks = replace(SHARED_OUT, world=4, ranks=((0, (33, 33)), (3, (33, 32))))
    (found,) = stk506.examine(_target(stream=True), ranks)
    assert (found.code, found.severity) == ("STK506", "high")
    assert (found.numbers["world"], found.numbers["rank_0"], found.numbers["rank_3"]) == (4, 4, 3)
    (sampler,) = stk506.examine(TARGET, sampler=SamplerFacts("Own", 10, 100, world=2, ranks=((0, 4), (1, 3))))
    assert sampler.where == "Own"


def test_ranks_with_unequal_samples_but_equal_batches_are_fine():
    ranks = replace(SHARED_OUT, world=2, ranks=((0, (26, 26)), (1, (26, 25))))
    assert not list(stk506.examine(_target(stream=True), ranks))
    assert not list(stk506.examine(TARGET, SHARED_OUT, SamplerFacts("Own", 10, 100)))
    assert not list(
        stk506.examine(TARGET, sampler=SamplerFacts("Own", 10, 100, world=2, ranks=((0, 4), (1, 4))))
    )


def test_one_loader_iterated_twice():
    paired = _target(source=_script(loop="zip(loader, loader)"), persistent_workers=True)
    (found,) = stk508.examine(paired)
    assert (found.code, found.where, found.numbers["line"]) == ("STK508", "loader", 6)
    assert "batch 0 with batch 1" in found.evidence
    nested = "for a in enumerate(loader):\n    for b in loader: ...\n" + _script()
    (inner,) = stk508.examine(_target(source=nested, persistent_workers=True))
    assert "nested" in inner.evidence


def test_two_loaders_and_loops_one_after_the_other_are_fine():
    for loop in ("zip(loader, valid)", "zip(loader, names)"):
        assert not list(stk508.examine(_target(source=_script(loop=loop), persistent_workers=True)))
    assert not list(stk508.examine(_target(source=_script(loop="zip(loader, loader)"))))
    after = _script() + "for batch in loader: ...\n"
    assert not list(stk508.examine(_target(source=after, persistent_workers=True)))


def test_a_generator_that_dies_and_an_iterator_that_goes_on():
    broken = replace(SHARED_OUT, declared=10, broken=BrokenItem(5, "ValueError", "bad record", "ended"))
    (found,) = stk509.examine(broken, _target(stream=True))
    assert (found.code, found.severity, found.numbers["item"]) == ("STK509", "high", 5)
    assert "item 5 of 10 raised ValueError: bad record" in found.evidence
    goes_on = replace(SHARED_OUT, broken=BrokenItem(5, "ValueError", "bad record", "went on"))
    assert not list(stk509.examine(goes_on, _target(stream=True)))
    assert not list(stk509.examine(SHARED_OUT, _target(stream=True)))


def test_lengths_that_are_wrong_and_lengths_that_cannot_be_judged():
    (found,) = stk510.examine(replace(SHARED_OUT, declared=90), _target(stream=True))
    assert (found.code, found.severity) == ("STK510", "moderate")
    assert (found.numbers["declared"], found.numbers["items"]) == (90, 103)
    (beyond,) = stk510.examine(replace(ENDLESS, declared=90), _target(stream=True))
    assert "more than 20000" in beyond.evidence
    for fine in (replace(SHARED_OUT, declared=103), replace(ENDLESS, declared=10**6), SHARED_OUT):
        assert not list(stk510.examine(fine, _target(stream=True)))
    assert not list(stk510.examine(replace(WHOLE, declared=100), _target(stream=True)))


def test_samplers_that_cannot_be_right():
    outside = SamplerFacts(
        "WeightedRandomSampler", 1000, 800, OutOfRangeIndex(900, 3, "IndexError: list index"), 190
    )
    (found,) = stk511.examine(outside, TARGET)
    assert (found.code, found.severity, found.numbers["index"]) == ("STK511", "high", 900)
    assert "190 of 1000" in found.evidence
    (once,) = stk511.examine(SamplerFacts("generator", 10, 10, one_shot=True), TARGET)
    assert "used up after one epoch" in once.evidence
    (raising,) = stk511.examine(SamplerFacts("Own", 3, 10, error="KeyError: 3"), TARGET)
    assert "KeyError: 3" in raising.evidence
    (empty,) = stk511.examine(SamplerFacts("Own", 0, 10, empty=True), TARGET)
    assert empty.numbers["seen"] == 0
    (nothing,) = stk511.examine(SamplerFacts("SequentialSampler", 0, 0, empty=True), TARGET)
    assert (nothing.where, nothing.numbers["length"]) == ("dataset", 0)
    (unknown,) = stk511.examine(
        SamplerFacts("RandomSampler", 0, None, error="len(dataset): OSError: no index"), TARGET
    )
    assert (unknown.where, "OSError: no index" in unknown.evidence) == ("dataset.__len__", True)


def test_a_dataset_that_takes_any_index_and_an_ordinary_sampler_are_fine():
    wraps = SamplerFacts("Own", 1000, 800, OutOfRangeIndex(900, 3, ""), 190)
    assert not list(stk511.examine(wraps, TARGET))
    assert not list(stk511.examine(SamplerFacts("RandomSampler", 0, 800), TARGET))


def test_two_loaders_that_both_keep_their_workers():
    both = _target(
        persistent_workers=True, num_workers=8, others=({"persistent_workers": True, "num_workers": 4},)
    )
    (found,) = stk602.examine(both, MachineFacts(available_bytes=4 << 30))
    assert (found.code, found.severity) == ("STK602", "low")
    (trifle,) = stk602.examine(both, MachineFacts(available_bytes=64 << 30))
    assert trifle.severity == "none"
    assert (found.numbers["workers"], found.numbers["idle"]) == (12, 4)
    batches, rows = (
        SampleFacts((0,), (), batch_bytes=1 << 20),
        ScanFacts(copied_bytes=1 << 30, nbytes=2 << 30),
    )
    (scarce,) = stk602.examine(both, MachineFacts(available_bytes=8 << 30), batches, rows)
    assert scarce.severity == "moderate"
    assert scarce.numbers["idle_bytes"] == 4 * ((16 << 20) + (1 << 30)) + 2 * 4 * (1 << 20)
    spawned = replace(both, loader=replace(both.loader, start_method="spawn"))
    (sent,) = stk602.examine(spawned, None, None, rows)
    assert sent.numbers["idle_bytes"] == 4 * ((150 << 20) + (2 << 30))
    (written,) = stk602.examine(_target(persistent_workers=True, num_workers=4, source=_script()))
    assert written.numbers["workers"] == 6
    assert written.evidence.startswith("the target's file makes 2 loaders with persistent workers")


def test_one_loader_that_keeps_its_workers_is_fine():
    one = _target(persistent_workers=True, num_workers=8, others=({"num_workers": 4},))
    assert not list(stk602.examine(one))
    no_workers = _target(
        persistent_workers=True, num_workers=8, others=({"persistent_workers": True, "num_workers": 0},)
    )
    assert not list(stk602.examine(no_workers))
    assert not list(stk602.examine(replace(_target(persistent_workers=True, source=_script()), assumed=True)))


CPU = PinningFacts(None, 0, 5e9)
CUDA = PinningFacts("cuda", 1, 5e9)
FLOATS = Leaf("[0]", "tensor", "float32", (3, 224, 224), 602_112, 602_112)
LARGE = SampleFacts(
    (0, 1), (FLOATS,), sample_s=(1e-4, 1e-4), collate_s=(1e-3,), batch_bytes=154_140_672, batch_tensors=1
)


def test_pinning_that_does_nothing_and_none_that_would_help():
    (needless,) = stk703.examine(_target(pin_memory=True), CPU)
    assert (needless.code, needless.severity) == ("STK703", "low")
    assert needless.edit is not None
    assert (needless.edit.after, needless.edit.kind) == ("pin_memory=False", "argument")
    (wanted,) = stk703.examine(TARGET, CUDA, LARGE)
    assert wanted.edit is not None
    assert wanted.edit.after == "pin_memory=True"
    (empty,) = stk703.examine(_target(pin_memory=True), CUDA, SampleFacts((0,), ()))
    assert "no tensors" in empty.evidence


def test_pinning_with_an_accelerator_and_none_without_are_fine():
    assert not list(stk703.examine(_target(pin_memory=True), CUDA, LARGE))
    assert not list(stk703.examine(TARGET, CPU, LARGE))
    assert not list(stk703.examine(TARGET, CUDA, SampleFacts((0,), ())))
    assert not list(stk703.examine(replace(TARGET, assumed=True), CUDA, LARGE))


def test_the_pin_thread_is_the_limit_where_copying_takes_longer_than_making():
    pinning = _target(pin_memory=True, batch_size=256, num_workers=8)
    (found,) = stk704.examine(pinning, CUDA, LARGE)
    assert (found.code, found.severity, found.where) == ("STK704", "moderate", "pin_memory")
    assert found.numbers["copy_s"] == pytest.approx(154_140_672 / 5e9)
    assert found.numbers["made_s"] == pytest.approx((256e-4 + 1e-3) / 8)
    assert "uint8" in found.advice
    (estimate,) = stk704.examine(pinning, CPU, LARGE)
    assert "no accelerator here" in estimate.evidence


def test_slow_samples_small_batches_and_no_pinning_leave_the_pin_thread_idle():
    pinning = _target(pin_memory=True, batch_size=256, num_workers=8)
    assert not list(stk704.examine(pinning, CUDA, replace(LARGE, sample_s=(5e-3,))))
    assert not list(stk704.examine(pinning, CUDA, replace(LARGE, batch_bytes=1000, sample_s=(1e-9,))))
    assert not list(stk704.examine(_target(batch_size=256, num_workers=8), CUDA, LARGE))


def test_epochs_that_are_short_against_the_start_of_workers():
    quick = SampleFacts((0, 1), (), sample_s=(1e-4, 1e-4), collate_s=(1e-4,))
    (found,) = stk706.examine(_target(num_workers=8, start_method="spawn"), quick, ScanFacts(pickle_s=0.5))
    assert (found.code, found.severity) == ("STK706", "moderate")
    assert found.numbers["start_s"] == pytest.approx(2.5 + 8 * 0.5)
    assert found.edit is not None
    assert (found.edit.after, found.edit.kind) == ("persistent_workers=True", "argument")
    (ours,) = stk706.examine(
        _target(num_workers=8, start_method="spawn", engine="stoker"), quick, ScanFacts(pickle_s=0.5)
    )
    assert ours.numbers["start_s"] == pytest.approx(3.0)
    (forked,) = stk706.examine(_target(num_workers=8), quick)
    assert forked.severity == "low"
    (served,) = stk706.examine(_target(num_workers=8, start_method="forkserver", engine="stoker"), quick)
    assert (served.severity, served.numbers["start_s"]) == ("low", forked.numbers["start_s"])


def test_long_epochs_and_workers_that_stay_are_fine():
    slow = SampleFacts((0, 1), (), sample_s=(5e-2, 5e-2), collate_s=(1e-4,))
    assert not list(stk706.examine(_target(num_workers=8), slow))
    quick = replace(slow, sample_s=(1e-6,))
    assert not list(stk706.examine(_target(num_workers=8, persistent_workers=True), quick))
    assert not list(stk706.examine(_target(num_workers=0), quick))
    assert not list(stk706.examine(_target(num_workers=2, batches=None), quick))


FROZEN = replace(
    REPEATED, varies=False, workers_equal=True, epochs_equal=True, sources=(GLOBAL,), frozen=(0, 800)
)


def test_random_samples_that_something_keeps_are_found():
    (found,) = stk513.examine(FROZEN)
    assert (found.code, found.severity, found.where) == ("STK513", "high", "numpy.random")
    assert "2 samples drew from numpy.random when first made" in found.evidence
    assert "before the random step" in found.advice


@pytest.mark.parametrize(
    "facts", [replace(FROZEN, frozen=()), replace(FROZEN, sources=()), HEALTHY, REPEATED]
)
def test_samples_that_draw_nothing_or_draw_anew_are_not_frozen(facts):
    assert not list(stk513.examine(facts))
