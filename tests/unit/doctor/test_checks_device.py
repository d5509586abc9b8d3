"""Loops that wait for copies, and images that are larger than they need to be: on facts made up by the test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker._tools.doctor.checks.speed import stk703_needless_pinning as stk703
from stoker._tools.doctor.checks.speed import stk704_pin_thread as stk704
from stoker._tools.doctor.checks.speed import stk708_waiting_copy as stk708
from stoker._tools.doctor.checks.speed import stk709_not_page_locked as stk709
from stoker._tools.doctor.checks.speed import stk710_float_images as stk710
from stoker._tools.doctor.facts.host.pinning import PinningFacts
from stoker._tools.doctor.facts.samples import Leaf, SampleFacts
from stoker._tools.doctor.sources.copies import waiting_copies
from tests.unit.doctor.test_checks_growth import LOADER, TARGET

CPU = PinningFacts(None, 0, 5e9)
CUDA = PinningFacts("cuda", 1, 5e9)
LOOP = """
train = DataLoader(data, batch_size=64)
for epoch in range(3):
    for step, (images, labels) in enumerate(train):
        images = images.to(device)
        labels = labels.cuda()
        loss = model(images.to(torch.float16)).sum().to(device)
"""


def test_copies_that_wait_are_found_by_the_scripts_text():
    assert [(each.line, each.text) for each in waiting_copies(LOOP)] == [
        (5, "images.to(device)"),
        (6, "labels.cuda()"),
    ]


@pytest.mark.parametrize(
    "source",
    [
        "for x in loader:\n    x = x.to(device, non_blocking=True)",
        "for x in loader:\n    x = x.to(torch.float32)\n    x = x.to('cpu')",
        "for x in batches:\n    x = x.to(device)",
        "for x in loader:\n    model.to(device)",
        "for x in loader:\n    (",
        "",
    ],
)
def test_copies_that_do_not_wait_are_not_found(source):
    assert waiting_copies(source) == ()


def test_a_loop_that_waits():
    (found,) = stk708.examine(replace(TARGET, source=LOOP), CUDA)
    assert (found.code, found.severity, found.where) == ("STK708", "moderate", "line 5")
    assert "images.to(device), and 1 more" in found.evidence
    assert "non_blocking=True" in found.advice
    ours = replace(TARGET, source=LOOP, loader=replace(LOADER, engine="stoker"))
    (found,) = stk708.examine(ours, CPU)
    assert found.severity == "low"
    assert found.edit is not None
    assert (found.edit.after, found.edit.kind) == ('device="auto"', "argument")
    assert not list(stk708.examine(replace(TARGET, source="for x in loader:\n    pass"), CUDA))
    assert not list(stk708.examine(replace(ours, assumed=True), CUDA))


def _samples(dtype: str, shape: tuple[int, ...], nbytes: int) -> SampleFacts:
    return SampleFacts((0,), (Leaf("[0]", "tensor", dtype, shape, nbytes, nbytes),), batch_tensors=1)


def test_float_images_and_the_bytes_they_waste():
    target = replace(TARGET, loader=replace(LOADER, batch_size=64))
    (found,) = stk710.examine(target, _samples("torch.float32", (3, 224, 224), 602_112), CUDA)
    assert (found.code, found.severity) == ("STK710", "low")
    assert found.numbers == {"batch_bytes": 64 * 602_112, "saved_bytes": 48 * 602_112}
    assert "27.6 MiB less per batch" in found.advice


@pytest.mark.parametrize(
    ("samples", "pinning"),
    [
        (_samples("torch.uint8", (3, 224, 224), 150_528), CUDA),
        (_samples("torch.float32", (768,), 602_112), CUDA),
        (_samples("torch.float32", (12, 224, 224), 602_112), CUDA),
        (_samples("torch.float32", (3, 28, 28), 9_408), CUDA),
        (_samples("torch.float32", (3, 224, 224), 602_112), CPU),
    ],
)
def test_what_has_to_be_float_or_goes_nowhere_is_not_found(samples, pinning):
    target = replace(TARGET, loader=replace(LOADER, batch_size=64, pin_memory=False))
    assert not list(stk710.examine(target, samples, pinning))


OURS = replace(TARGET, source=LOOP, loader=replace(LOADER, engine="stoker", pin_memory=False, num_workers=8))
THERE = replace(OURS, loader=replace(OURS.loader, device="cuda"))
COSTLY = replace(_samples("torch.float32", (768,), 602_112), sample_s=(1e-9,), batch_bytes=154_140_672)


def test_a_loader_of_ours_is_told_to_bring_batches_rather_than_to_pin():
    (found,) = stk703.examine(OURS, CUDA)
    assert found.edit is not None
    assert (found.edit.after, found.edit.kind) == ('device="auto"', "argument")


@pytest.mark.parametrize("pins", [True, False])
def test_a_loader_that_brings_batches_has_no_copies_that_wait_and_nothing_to_pin(pins):
    target = replace(THERE, loader=replace(THERE.loader, pin_memory=pins))
    assert not list(stk703.examine(target, CUDA))
    assert not list(stk704.examine(target, CUDA, COSTLY))
    assert not list(stk708.examine(target, CUDA))
    plain = replace(target, loader=replace(target.loader, device=None, pin_memory=True))
    assert [each.code for each in stk704.examine(plain, CUDA, COSTLY)] == ["STK704"]


def test_memory_that_was_to_be_page_locked_and_is_not():
    pins = replace(TARGET, loader=replace(LOADER, pin_memory=True))
    (found,) = stk709.examine(pins, replace(CUDA, pin_error="out of memory"))
    assert (found.code, found.severity, found.where) == ("STK709", "moderate", "pin_memory")
    assert "out of memory" in found.evidence
    (found,) = stk709.examine(THERE, replace(CUDA, register_error="the driver's error 801"))
    assert (found.code, found.severity, found.where) == ("STK709", "low", "device")
    assert (
        'device="cuda", and memory cannot be registered with the driver: the driver\'s error 801'
        in found.evidence
    )
    assert not list(stk709.examine(THERE, CUDA))
    assert not list(stk709.examine(replace(pins, assumed=True), replace(CUDA, pin_error="out of memory")))
