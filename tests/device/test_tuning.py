"""The tuner's measurements of a loader with ``device=``: in each of them batches go to the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker._runtime.device.host_registers import HOST_REGISTERS, HostRegister
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.target import subject_of
from stoker._tools.tune.probes import block, demand, likeness
from stoker._tools.tune.probes.target import probe as target_of
from tests.fake_device import NAME, FakeDevice

WIDTH = 6000


class Wide(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((WIDTH,), float(index))


@pytest.fixture(autouse=True)
def _registers(fake: FakeDevice) -> Iterator[None]:
    HOST_REGISTERS[NAME] = HostRegister(fake.register_host, fake.unregister_host)
    yield
    assert fake.registered() == []


@pytest.fixture
def subject() -> Subject:
    return subject_of(stoker.DataLoader(Wide(), batch_size=4, num_workers=1, device=NAME), name="it.py:it")


def test_a_block_brings_batches_to_the_device(fake: FakeDevice, subject: Subject) -> None:
    seen: set[str] = set()
    subject.kept["step"] = lambda batch: seen.add(batch.device.type)
    setting = target_of(subject).setting
    subject = replace(
        subject,
        trial={"setting": setting.as_dict(), "seconds": 0.05, "least": 4, "step": True, "close": True},
    )
    found = block.probe(subject)
    assert (found.failure, seen) == ("", {NAME})
    assert found.batches >= 4
    assert fake.counters().copies_to_device >= 4


def test_a_step_that_needs_the_device_gets_batches_there(fake: FakeDevice, subject: Subject) -> None:
    def step(batch: Any) -> None:
        if batch.device.type != NAME:
            raise RuntimeError("expected all tensors to be on the same device")

    subject.kept["step"] = step
    subject = replace(subject, trial={"step": True, "seconds": 0.01})
    assert demand.probe(subject).step_ns > 0


def test_batches_are_compared_where_they_can_be_read(fake: FakeDevice, subject: Subject) -> None:
    subject = replace(subject, trial={"setting": target_of(subject).setting.as_dict()})
    assert likeness.probe(subject).alike is True
