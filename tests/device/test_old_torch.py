"""With torch 2.6, whose ``torch.accelerator`` has fewer names and whose streams are no context managers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker._runtime.device import accelerator
from stoker._runtime.device.host_registers import HOST_REGISTERS, HostRegister
from tests.fake_device import NAME, FakeDevice


class Wide(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((6000,), float(index))


@pytest.fixture(autouse=True)
def old(fake: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The names of torch 2.6."""
    new: Any = torch.accelerator
    made = SimpleNamespace(
        is_available=new.is_available,
        current_accelerator=lambda: new.current_accelerator(),
        current_device_idx=new.current_device_index,
        set_device_idx=new.set_device_index,
        current_stream=new.current_stream,
        set_stream=new.set_stream,
    )
    monkeypatch.setattr(accelerator, "_torch", made)
    monkeypatch.setattr(accelerator, "_STREAMS_ENTER", False)
    return made


@pytest.mark.parametrize("registers", [True, False])
@pytest.mark.parametrize("device", ["auto", f"{NAME}:1"])
def test_batches_arrive(fake: FakeDevice, device: str, registers: bool) -> None:
    HOST_REGISTERS[NAME] = HostRegister(fake.register_host, fake.unregister_host)
    if not registers:
        fake.fail_registrations()
    with stoker.DataLoader(Wide(), batch_size=1, num_workers=2, device=device) as loader:
        before = torch.accelerator.current_stream()
        batches = list(loader)
        assert torch.accelerator.current_stream() == before
        assert {batch.device for batch in batches} == {torch.device(NAME, int(device.endswith("1")))}
        assert [batch.cpu().unique().tolist() for batch in batches] == [[float(row)] for row in range(24)]
    del batches
    assert fake.registered() == []


def test_batches_are_pinned(fake: FakeDevice) -> None:
    with stoker.DataLoader(Wide(), batch_size=1, num_workers=2, pin_memory=True) as loader:
        assert all(batch.is_pinned() for batch in loader)


def test_without_an_accelerator_auto_is_the_cpu(old: SimpleNamespace) -> None:
    def none() -> torch.device:
        raise RuntimeError("no accelerator was found")

    old.current_accelerator, old.is_available = none, lambda: False
    assert accelerator.built_accelerator() is None
    with stoker.DataLoader(Wide(), batch_size=1, device="auto") as loader:
        assert next(iter(loader)).device.type == "cpu"
    with pytest.raises(stoker.errors.DeviceError, match="has no accelerator here"):
        iter(stoker.DataLoader(Wide(), batch_size=1, device="cuda"))
