"""What the doctor finds out about page-locked memory by trying: only for loaders that want some, and it leaves none behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import stoker
from stoker._runtime.device.host_registers import HOST_REGISTERS, HostRegister
from stoker._tools.doctor.probes import pinning
from stoker._tools.doctor.probes.target import probe as target_of
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.target import subject_of
from tests.fake_device import NAME, FakeDevice


@pytest.fixture(autouse=True)
def _registers(fake: FakeDevice) -> Iterator[None]:
    HOST_REGISTERS[NAME] = HostRegister(fake.register_host, fake.unregister_host)
    yield
    assert fake.registered() == []


def subject(**options: Any) -> Subject:
    return subject_of(stoker.DataLoader(range(8), **options), name="it.py:it")  # type: ignore[arg-type]


def test_the_loaders_device_is_a_fact() -> None:
    assert target_of(subject(device=torch.device(NAME, 1))).loader.device == f"{NAME}:1"
    assert target_of(subject()).loader.device is None


def test_where_memory_can_be_page_locked_there_is_nothing_to_say(fake: FakeDevice) -> None:
    for options in ({"device": NAME}, {"pin_memory": True}):
        found = pinning.probe(subject(**options))
        assert (found.accelerator, found.pin_error, found.register_error) == (NAME, "", "")
    assert fake.counters().registrations_made == 1


def test_what_refuses_is_named(fake: FakeDevice) -> None:
    fake.fail_pinning()
    fake.fail_registrations()
    found = pinning.probe(subject(device="auto"))
    assert "page-locked memory is refused" in found.pin_error
    assert found.register_error == "the driver's error 304"
    pinned = pinning.probe(subject(pin_memory=True))
    assert (pinned.pin_error, pinned.register_error) == (found.pin_error, "")
    plain = pinning.probe(subject())
    assert (plain.pin_error, plain.register_error) == ("", "")


def test_a_fork_of_a_process_that_uses_the_device_does_not_try(fake: FakeDevice) -> None:
    torch.ones(3, device=NAME)
    fake.fail_pinning()
    wanted = subject(device=NAME)
    pid = os.fork()
    if pid == 0:
        os._exit(pinning.probe(wanted).pin_error != "")
    assert os.waitpid(pid, 0)[1] == 0
