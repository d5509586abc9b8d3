"""The table of a flat batch: the same batch over other memory as over its slot."""

import ctypes
from typing import Any

import pytest
import torch

from stoker._runtime.transport.codec import EncodedBatch, decode, encode
from stoker._runtime.transport.flat_table import flat_table

FLAT: dict[str, Any] = {
    "one tensor": torch.arange(24.0).reshape(2, 3, 4),
    "list": [torch.arange(6, dtype=torch.uint8).reshape(1, 6), torch.tensor(3), torch.ones(4, 1, 2)],
    "tuple": (torch.tensor([True, False]), torch.tensor([1 + 2j])),
    "dict": {"z": torch.arange(5, dtype=torch.int16), "a": torch.zeros(3, dtype=torch.float64)},
}
OTHERS: dict[str, Any] = {
    "with a number": [torch.ones(2), 3],
    "nested": {"a": [torch.ones(2)]},
    "empty tensor": [torch.ones(0, 3)],
    "no tensor": [],
    "aliases": (lambda whole: [whole[:4], whole[2:]])(torch.arange(6.0)),
    "strides": [torch.ones(3, 4).t()],
    "bfloat16": [torch.ones(2, dtype=torch.bfloat16)],
    "grad": [torch.ones(2, requires_grad=True)],
}


def slot_of(encoded: EncodedBatch) -> bytearray:
    slot = bytearray(encoded.end + 64)
    encoded.copy_to(slot, ctypes.addressof(ctypes.c_char.from_buffer(slot)))
    return slot


def tensors_of(batch: Any) -> list[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        return [batch]
    return list(batch.values()) if isinstance(batch, dict) else list(batch)


@pytest.mark.parametrize("name", FLAT)
def test_a_flat_batch_is_the_same_over_other_memory(name: str) -> None:
    encoded = encode(FLAT[name], 100, [])
    slot, table = slot_of(encoded), flat_table(encoded.root)
    assert table is not None
    assert table.start % 64 == 0
    elsewhere = torch.tensor(slot[table.start : table.start + table.nbytes], dtype=torch.uint8)
    got, expected = table.batch_over(elsewhere), decode(slot, memoryview(encoded.root))
    assert type(got) is type(expected)
    if isinstance(got, dict):
        assert list(got) == list(expected)
    for new, old in zip(tensors_of(got), tensors_of(expected), strict=True):
        assert torch.equal(new, old)
        assert (new.dtype, new.stride(), new.is_contiguous()) == (old.dtype, old.stride(), True)
        assert new.untyped_storage().data_ptr() == elsewhere.untyped_storage().data_ptr()
        assert not new._is_view()  # autograd tracks each by itself


@pytest.mark.parametrize("name", OTHERS)
def test_other_batches_have_no_table(name: str) -> None:
    assert flat_table(encode(OTHERS[name], 0, []).root) is None


def test_a_tensor_that_no_storage_can_address_has_no_table() -> None:
    room = bytearray(64)
    address = ctypes.addressof(ctypes.c_char.from_buffer(room))
    unaligned = torch.frombuffer(memoryview(room)[1:9], dtype=torch.float32)
    # In place already, at an odd offset of the slot: float32 elements of a storage begin at multiples of four.
    assert flat_table(encode([unaligned], 0, [(address, address + 64)]).root) is None


def test_the_range_covers_all_tensors_and_no_more() -> None:
    batch = [torch.ones(3, dtype=torch.uint8), torch.ones(5)]
    table = flat_table(encode(batch, 128, []).root)
    assert table is not None
    assert (table.start, table.nbytes) == (128, 64 + 20)
