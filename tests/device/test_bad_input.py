"""Wrong devices, full devices, lost devices, device tensors and forks: each is one clear error with a code and a page."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker._runtime.device.host_registers import HOST_REGISTERS, HostRegister
from stoker._tools.doctor.catalogue import check_of
from stoker.errors import DeviceError, LoaderClosed
from tests.fake_device import NAME, FakeDevice


@pytest.fixture(autouse=True)
def _registers(fake: FakeDevice) -> Iterator[None]:
    HOST_REGISTERS[NAME] = HostRegister(fake.register_host, fake.unregister_host)
    yield
    gc.collect()
    assert fake.registered() == []


class Wide(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((6000,), float(index))


def load(**options: Any) -> stoker.DataLoader[Any]:
    defaults: dict[str, Any] = {"dataset": Wide(), "batch_size": 1, "num_workers": 2, "device": NAME}
    return stoker.DataLoader(**(defaults | options))


def assert_coded(error: BaseException, code: str) -> None:
    assert [note[:6] for note in error.__notes__ if "stoker explain" in note] == [code]
    check = check_of(code)
    assert check is not None
    assert check.sections["Fix"]


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("cuda", "has 'fakeaccel' here"),
        (f"{NAME}:2", "sees 2 devices"),
        ("nonsense", "is no device of this torch"),
        ("meta", "has 'fakeaccel' here"),
    ],
)
def test_a_device_that_is_not_there(fake: FakeDevice, device: str, words: str) -> None:
    with pytest.raises(DeviceError, match=words) as caught:
        iter(load(device=device))
    assert_coded(caught.value, "STK311")


@pytest.mark.parametrize("device", [7, ["cuda"], b"cuda"])
def test_a_device_of_the_wrong_type(fake: FakeDevice, device: Any) -> None:
    with pytest.raises(TypeError, match=r"device should be a string, a torch\.device or None"):
        load(device=device)
    with pytest.raises(ValueError, match="device_prefetch should be non-negative"):
        load(device_prefetch=-1)


def test_a_device_without_memory(fake: FakeDevice) -> None:
    """The batch that does not fit is lost, and the epoch goes on when there is memory again."""
    with load(device_prefetch=0) as loader:
        batches = iter(loader)
        assert next(batches).cpu().unique().tolist() == [0]
        fake.limit_memory(1000)
        with pytest.raises(torch.OutOfMemoryError) as caught:
            next(batches)
        assert_coded(caught.value, "STK606")
        fake.limit_memory(None)
        assert [batch.cpu().unique().tolist() for batch in batches] == [[float(i)] for i in range(2, 20)]
        del batches, caught


@pytest.mark.parametrize("registers", [True, False])
def test_a_device_that_is_lost_in_the_middle_of_an_epoch(fake: FakeDevice, registers: bool) -> None:
    if not registers:
        fake.fail_registrations()
    loader = load()
    batches = iter(loader)
    kept = [next(batches) for _ in range(3)]
    fake.lose()
    with pytest.raises(torch.AcceleratorError) as caught:
        kept += batches
    assert_coded(caught.value, "STK812")
    loader.close()
    del kept, batches, caught, loader


class Mover:
    """Moves itself."""

    def __init__(self, inside: torch.Tensor) -> None:
        self.inside = inside

    def to(self, device: torch.device) -> torch.Tensor:
        return self.inside.to(device)


def test_a_device_that_is_lost_while_objects_move_themselves(fake: FakeDevice) -> None:
    with load(collate_fn=lambda rows: Mover(rows[0])) as loader:
        batches = iter(loader)
        assert next(batches).cpu().unique().tolist() == [0]
        fake.lose()
        with pytest.raises(torch.AcceleratorError) as caught:
            next(batches)
        assert_coded(caught.value, "STK812")
        del batches, caught


def test_meta_tensors_stay(fake: FakeDevice) -> None:
    with load(collate_fn=lambda rows: [torch.empty(3, device="meta"), rows[0]]) as loader:
        for meta, row in loader:
            assert (meta.device.type, row.device.type) == ("meta", NAME)
        del meta, row


def test_device_tensors_from_the_dataset(fake: FakeDevice) -> None:
    class OnDevice(Wide):
        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.full((10,), float(index), device=NAME)

    with load(dataset=OnDevice(), num_workers=0) as loader, pytest.raises(DeviceError) as caught:
        next(iter(loader))
    assert_coded(caught.value, "STK304")
    with load(dataset=OnDevice(), executor="thread") as loader, pytest.raises(DeviceError) as caught:
        next(iter(loader))
    assert_coded(caught.value, "STK304")


def test_a_dataset_that_uses_the_device_in_a_worker(fake: FakeDevice) -> None:
    class OnDevice(Wide):
        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.full((10,), float(index), device=NAME).cpu()

    with load(dataset=OnDevice()) as loader, pytest.raises(RuntimeError) as caught:
        next(iter(loader))
    assert_coded(caught.value, "STK304")


def test_a_forked_child_that_touches_the_loader(fake: FakeDevice) -> None:
    with load() as loader:
        batches = iter(loader)
        first = next(batches)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                next(batches)
            except LoaderClosed as closed:
                os.write(writer, f"{closed.code} ".encode())
            try:
                iter(loader)
            except DeviceError as refused:
                os.write(writer, refused.code.encode())
            os._exit(0)
        os.close(writer)
        with open(reader) as pipe:
            assert pipe.read() == "STK902 STK312"
        assert os.waitpid(pid, 0)[1] == 0
        assert first.cpu().unique().tolist() == [0]
        assert [batch.cpu().unique().tolist() for batch in batches] == [[float(i)] for i in range(1, 20)]
        del first, batches
