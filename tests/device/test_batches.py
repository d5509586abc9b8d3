"""Batches on the device are what the CPU would have had: structure, values, strides, alignment, aliasing. One copy brings each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import Dataset

import stoker
from stoker._runtime.device.host_registers import HOST_REGISTERS, HostRegister
from stoker._runtime.transport.arena import Region
from tests.fake_device import NAME, FakeDevice

EXECUTORS = ["process", "thread", "inline"]


@pytest.fixture(autouse=True)
def _registers(fake: FakeDevice) -> Iterator[None]:
    """The fake's functions stand in the table, and nothing stays registered."""
    HOST_REGISTERS[NAME] = HostRegister(fake.register_host, fake.unregister_host)
    yield
    assert fake.registered() == []


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Card:
    image: torch.Tensor
    title: str


class Box:
    """An object without a ``to``, with a tensor in it."""

    def __init__(self, inside: torch.Tensor) -> None:
        self.inside = inside


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        return index


def zoo(rows: list[int]) -> dict[str, Any]:
    """Everything that a batch may hold."""
    base = torch.arange(6000, dtype=torch.float32) + rows[0]
    table = base[:5400].view(10, 9, 60)
    shared = torch.arange(40, dtype=torch.int64) * rows[0]
    required = torch.full((3,), float(rows[0]), requires_grad=True)
    labelled = torch.tensor([rows[0], 7])
    labelled.names_of_rows = ["a", "b"]  # type: ignore[attr-defined]
    return {
        "plain": base.clone(),
        "channels_last": torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(rows[0])).contiguous(
            memory_format=torch.channels_last
        ),
        "expanded": torch.tensor([[1.0], [float(rows[0])]]).expand(2, 500),
        "transposed": table.clone().transpose(0, 2),
        "nested": [{"a": torch.tensor(rows)}, (torch.ones(3, dtype=torch.bool), "text")],
        "pair": Pair(torch.tensor([rows[0]], dtype=torch.bfloat16), 3),
        "card": Card(torch.tensor([[rows[-1]]]), "title"),
        "box": Box(torch.tensor(rows[0])),
        "empty": torch.empty(0, 4),
        "complex": torch.complex(torch.ones(4), torch.full((4,), float(rows[0]))),
        "alias": [shared, shared[10:20], shared.view(4, 10)[:, 1]],
        "twice": [base, base],
        "required": required,
        "labelled": labelled,
        "array": np.arange(5) + rows[0],
        "strings": [str(row) for row in rows],
        "number": rows[0],
        "nothing": None,
    }


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)
    elif isinstance(value, Card | Box):
        yield from tensors_in(vars(value))


def load(executor: str, **options: Any) -> stoker.DataLoader[Any]:
    workers = 0 if executor == "inline" else 2
    name: Any = executor
    return stoker.DataLoader(Rows(), batch_size=4, num_workers=workers, executor=name, **options)


@pytest.mark.parametrize("ahead", [0, 1, 3])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_kind_of_value_arrives_as_on_the_cpu(fake: FakeDevice, executor: str, ahead: int) -> None:
    with load(executor, collate_fn=zoo, device=NAME, device_prefetch=ahead) as loader:
        batches = list(loader)
    with load(executor, collate_fn=zoo) as plain:
        expected = list(plain)
    assert len(batches) == len(expected) == 6
    for batch, wanted in zip(batches, expected, strict=True):
        assert list(batch) == list(wanted)
        for moved, stayed in zip(tensors_in(batch), tensors_in(wanted), strict=True):
            assert moved.device == torch.device(NAME, 0)
            assert (moved.dtype, moved.shape, moved.stride()) == (stayed.dtype, stayed.shape, stayed.stride())
            torch.testing.assert_close(moved.detach().cpu(), stayed.detach(), rtol=0, atol=0)
        assert isinstance(batch["array"], np.ndarray)
        assert batch["array"].tolist() == wanted["array"].tolist()
        assert (batch["number"], batch["nothing"], batch["nested"][1][1]) == (wanted["number"], None, "text")
        assert (type(batch["pair"]), batch["pair"].right, batch["card"].title) == (Pair, 3, "title")
        assert batch["strings"] == wanted["strings"]
        assert batch["required"].requires_grad
        assert batch["required"].is_leaf
        assert batch["labelled"].names_of_rows == ["a", "b"]
        assert batch["plain"].data_ptr() % 64 == 0
    del moved, batch, batches  # an array lies in its slot, which stays registered as long as it


@pytest.mark.parametrize("executor", EXECUTORS)
def test_aliases_stay_aliases(fake: FakeDevice, executor: str) -> None:
    with load(executor, collate_fn=zoo, device=NAME) as loader:
        batch = next(iter(loader))
        whole, part, column = batch["alias"]
        whole.fill_(7)
        assert part.cpu().unique().tolist() == column.cpu().unique().tolist() == [7]
        assert batch["twice"][0].data_ptr() == batch["twice"][1].data_ptr()
        batch["plain"].fill_(1)
        assert whole.cpu().unique().tolist() == [7]
        del whole, part, column, batch


class Twenty(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {f"field{number}": torch.full((33,), float(index + number)) for number in range(20)}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_twenty_tensors_cost_one_copy(fake: FakeDevice, executor: str) -> None:
    name: Any = executor
    workers = 0 if executor == "inline" else 2
    with stoker.DataLoader(Twenty(), batch_size=4, num_workers=workers, executor=name, device=NAME) as loader:
        before = fake.counters().copies_to_device
        batches = list(loader)
        assert fake.counters().copies_to_device - before == len(batches) == 10
        stats = loader.stats()["device"]
    assert (stats["copies"], stats["batches"], stats["ahead"], stats["ahead_bytes"]) == (10, 10, 0, 0)
    for number, batch in enumerate(batches):
        for field in range(20):
            wanted = [float(4 * number + row + field) for row in range(4)]
            assert batch[f"field{field}"].cpu()[:, 0].tolist() == wanted
            assert batch[f"field{field}"].cpu().std(1).max() == 0


@pytest.mark.parametrize("options", [{"device": NAME}, {"pin_memory": True}])
def test_a_flat_batch_is_not_opened_in_host_memory(
    fake: FakeDevice, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    def opened(region: Region, *place: int) -> Any:
        raise AssertionError("a batch was opened in host memory")

    monkeypatch.setattr(Region, "load", opened)
    with stoker.DataLoader(Twenty(), batch_size=4, num_workers=2, split_batches=False, **options) as loader:
        for number, batch in enumerate(loader):
            assert list(batch) == [f"field{field}" for field in range(20)]
            assert batch["field7"].cpu()[:, 0].tolist() == [float(4 * number + row + 7) for row in range(4)]
            assert batch["field7"].stride() == (33, 1)
        del batch


class Own:
    """An object that moves itself."""

    def __init__(self, rows: list[int]) -> None:
        self.inside = torch.tensor(rows)
        self.went = ""

    def to(self, device: torch.device) -> Own:
        moved = Own([0])
        moved.inside, moved.went = self.inside.to(device, non_blocking=True), str(device)
        return moved


class Bag(dict[str, Any]):
    """A mapping with a ``to``, as those of transformers."""

    went = ""

    def to(self, device: torch.device, non_blocking: bool = False) -> Bag:
        moved = Bag({key: each.to(device) for key, each in self.items()})
        moved.went = str(device)
        return moved


def own_ones(rows: list[int]) -> tuple[Any, ...]:
    packed = pack_sequence([torch.arange(5) + rows[0], torch.arange(3) + rows[0]])
    return Own(rows), packed, Bag(ids=torch.tensor(rows), mask=torch.ones(4)), torch.tensor(rows)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_objects_with_their_own_to_are_asked(fake: FakeDevice, executor: str) -> None:
    with load(executor, collate_fn=own_ones, device=NAME) as loader:
        batches = list(loader)
    for number, (own, packed, bag, plain) in enumerate(batches):
        rows = list(range(4 * number, 4 * number + 4))
        assert (own.went, own.inside.cpu().tolist()) == (f"{NAME}:0", rows)
        assert isinstance(packed, PackedSequence)
        assert packed.data.device.type == NAME
        assert packed.batch_sizes.tolist() == [2, 2, 2, 1, 1]
        assert packed.data.cpu().tolist()[0] == rows[0]
        assert (type(bag), bag.went) == (Bag, f"{NAME}:0")
        assert bag["ids"].cpu().tolist() == plain.cpu().tolist() == rows
    del own, packed, bag, plain, batches


def test_a_batch_without_tensors_stays(fake: FakeDevice) -> None:
    with load("process", collate_fn=list, device=NAME) as loader:
        assert list(loader) == [list(range(start, start + 4)) for start in range(0, 24, 4)]
        assert loader.stats()["device"]["copies"] == 0
    assert fake.counters().copies_to_device == 0


def test_auto_is_the_accelerator_and_a_number_is_kept(fake: FakeDevice) -> None:
    for device, found in (
        ("auto", 0),
        (NAME, 0),
        (f"{NAME}:1", 1),
        (torch.device(NAME, 1), 1),
        ("cpu", None),
    ):
        with load("process", device=device) as loader:
            batch = next(iter(loader))
            assert batch.device == (torch.device("cpu") if found is None else torch.device(NAME, found))
            assert batch.cpu().tolist() == [0, 1, 2, 3]
            assert (loader.stats()["device"] is None) == (found is None)
        del batch


def test_split_batches_and_streams_and_bad_samples_arrive(fake: FakeDevice) -> None:
    """What comes in several parts, in an envelope, or through the parent's own collation."""

    class Slow(Dataset[tuple[torch.Tensor, int, str]]):
        def __len__(self) -> int:
            return 256

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int, str]:
            if index == 70:
                raise ValueError("a bad one")
            return torch.full((400,), float(index)), index, str(index)

    with stoker.DataLoader(
        Slow(), batch_size=64, num_workers=2, split_batches=True, on_bad_sample="skip", device=NAME
    ) as loader:
        for _ in range(2):
            for number, (images, indices, texts) in enumerate(loader):
                rows = [row for row in range(64 * number, 64 * number + 64) if row != 70]
                assert images.cpu()[:, 0].tolist() == [float(row) for row in rows]
                assert images.cpu().std(1).max() == 0
                assert indices.cpu().tolist() == rows
                assert list(texts) == [str(row) for row in rows]
        assert loader.stats()["bad_samples"]["count"] == 2
        del images, indices


def test_a_state_counts_batches_that_were_taken_not_those_ahead(fake: FakeDevice) -> None:
    with load("process", device=NAME, device_prefetch=2) as loader:
        batches = iter(loader)
        taken = [next(batches).cpu().tolist() for _ in range(2)]
        state = loader.state_dict()
        rest = [batch.cpu().tolist() for batch in batches]
    with load("inline", device=NAME) as again:
        again.load_state_dict(state)
        assert [batch.cpu().tolist() for batch in again] == rest
    assert taken + rest == [list(range(start, start + 4)) for start in range(0, 24, 4)]


def test_parts_that_the_parent_has_to_collate_are_opened_once(fake: FakeDevice) -> None:
    """The first split batch travels as samples: it waits, opened, until it is asked for."""
    with stoker.DataLoader(
        Twenty(), batch_size=20, num_workers=2, split_batches=True, device=NAME, device_prefetch=4
    ) as loader:
        for _ in range(3):
            for number, batch in enumerate(loader):
                wanted = [float(20 * number + row + 3) for row in range(20)]
                assert batch["field3"].cpu()[:, 0].tolist() == wanted
        del batch


def test_the_record_has_how_long_copies_took_there(fake: FakeDevice) -> None:
    with load("process", device=NAME) as loader:
        assert len(list(loader)) == 6
        torch.accelerator.synchronize(0)
        assert len(list(loader)) == 6
        stats = loader.stats()
    copied_ns = stats["device"]["copied_ns"]
    assert copied_ns > 0
    assert stats["record"]["loaders"][0]["totals"]["copied_ns"] == copied_ns
