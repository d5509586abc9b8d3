"""Where memory cannot be registered or pinned, batches still arrive: one log line and one fact each, never an error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker._runtime.device.host_registers import HOST_REGISTERS, HostRegister
from tests.fake_device import NAME, FakeDevice


class Wide(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((5000,), float(index))


@pytest.fixture(autouse=True)
def _registers(fake: FakeDevice) -> Iterator[None]:
    HOST_REGISTERS[NAME] = HostRegister(fake.register_host, fake.unregister_host)
    yield
    assert fake.registered() == []


def check(batches: list[torch.Tensor]) -> None:
    assert [batch.cpu().unique().tolist() for batch in batches] == [
        [float(row) for row in range(start, start + 4)] for start in range(0, 48, 4)
    ]


def run(executor: Any = "process", **options: Any) -> dict[str, Any]:
    options.setdefault("device", NAME)
    with stoker.DataLoader(Wide(), batch_size=4, num_workers=2, executor=executor, **options) as loader:
        check(list(loader))
        check(list(loader))
        return loader.stats()["device"]


def test_registered_slots_are_copied_straight(fake: FakeDevice) -> None:
    found = run()
    assert (found["memory"], found["fallbacks"]) == ("registered", [])
    counters = fake.counters()
    assert counters.registrations_made > 0
    assert counters.registrations == counters.registered_bytes == 0


def test_without_registering_batches_go_through_pinned_memory(
    fake: FakeDevice, caplog: pytest.LogCaptureFixture
) -> None:
    fake.fail_registrations()
    with caplog.at_level(logging.WARNING, "stoker"):
        found = run()
    assert found["memory"] == "pinned"
    assert len(found["fallbacks"]) == 1
    assert "registering" in found["fallbacks"][0]
    assert [record.getMessage() for record in caplog.records] == [f"loader: {found['fallbacks'][0]}"]
    assert fake.counters().registrations_failed == 1
    assert fake.counters().copies_to_device == 24


def test_registering_that_fails_later_keeps_what_is_registered(fake: FakeDevice) -> None:
    with stoker.DataLoader(
        Wide(), batch_size=4, num_workers=2, persistent_workers=True, device=NAME
    ) as loader:
        first = next(iter(loader))
        assert loader.stats()["device"]["memory"] == "registered"
        fake.fail_registrations()
        check(list(loader))
        check(list(loader))
        assert first.cpu().unique().tolist() == [0, 1, 2, 3]
        assert len(loader.stats()["device"]["fallbacks"]) <= 1
        del first


def test_without_pinned_memory_batches_go_from_pageable(
    fake: FakeDevice, caplog: pytest.LogCaptureFixture
) -> None:
    fake.fail_registrations()
    fake.fail_pinning()
    with caplog.at_level(logging.WARNING, "stoker"):
        found = run()
    assert found["memory"] == "pageable"
    assert [("registering" in each, "pin memory" in each) for each in found["fallbacks"]] == [
        (True, False),
        (False, True),
    ]
    assert len(caplog.records) == 2
    assert fake.counters().pageable_copies >= 24


@pytest.mark.parametrize("executor", ["process", "thread"])
def test_a_device_without_a_function_for_registering_uses_pinned_memory(
    fake: FakeDevice, monkeypatch: pytest.MonkeyPatch, executor: str
) -> None:
    monkeypatch.delitem(HOST_REGISTERS, NAME)
    found = run(executor)
    assert found["memory"] == "pinned"
    assert len(found["fallbacks"]) == 1


def test_a_driver_that_raises_is_a_driver_that_refuses(
    fake: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: int, nbytes: int) -> int:
        raise OSError("no such library")

    monkeypatch.setitem(HOST_REGISTERS, NAME, HostRegister(refuse, fake.unregister_host))
    assert "no such library" in run()["fallbacks"][0]


def test_a_device_without_streams_is_served_synchronously(
    fake: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise NotImplementedError("no streams here")

    monkeypatch.setattr(torch, "Stream", refuse)
    found = run()
    assert found["memory"] == "synchronous"
    assert found["copies"] == 0
