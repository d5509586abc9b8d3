"""Shared arrays and tensors are ordinary ones over a segment; segments are sealed and nameless."""

from __future__ import annotations

import copy
import gc
import os
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from stoker._pickling import segment
from stoker._pickling.segment import SegmentWriter
from stoker._pickling.spec_pickle import SpecPickle, unpack
from stoker._sharing.containers.arrays import SharedArray
from stoker._sharing.storage.packing import pack
from stoker._sharing.storage.pickled import NotPacked
from stoker.errors import SharedReadOnly


def shared(obj: Any) -> Any:
    writer = SegmentWriter()
    try:
        return pack(obj, writer).open(writer.seal())
    finally:
        writer.close()


def in_segment(array: np.ndarray[Any, Any]) -> bool:
    return segment.find(array.__array_interface__["data"][0], array.nbytes) is not None


ARRAYS = [
    np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.arange(20)[::2],
    np.array(5),
    np.zeros((0, 3)),
    np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    np.array(["2020-01-01"], dtype="M8[D]"),
    np.array(["a", "bc"]),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_an_array_comes_back(array: np.ndarray[Any, Any]) -> None:
    mine = shared(array)
    assert isinstance(mine, SharedArray)
    assert mine.dtype == array.dtype
    assert np.array_equal(mine, array)
    assert not mine.flags.writeable
    if array.flags.f_contiguous and array.ndim > 1:
        assert mine.flags.f_contiguous == array.flags.f_contiguous


def test_what_is_derived_is_an_ordinary_array() -> None:
    mine = shared(np.arange(12.0).reshape(3, 4))
    for derived in (
        mine[0],
        mine[:, 1],
        mine + 1,
        mine.T,
        mine.astype(int),
        mine.reshape(4, 3),
        np.sin(mine),
        -mine,
    ):
        assert type(derived) is np.ndarray
    assert type(mine.sum()) is np.float64
    assert type(next(iter(mine))) is np.ndarray
    assert not mine[0].flags.writeable
    assert mine.astype(int).flags.writeable
    assert type(mine.copy()) is np.ndarray
    assert mine.copy().flags.writeable
    assert copy.deepcopy(mine) is mine


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.__setitem__(0, 1), lambda x: x.__iadd__(1), lambda x: x.__imul__(2), lambda x: x.fill(0),
        lambda x: x.sort(), lambda x: x.setflags(write=True),
    ],
)  # fmt: skip
def test_writing_says_what_to_do(write: Any) -> None:
    mine = shared(np.arange(3))
    with pytest.raises(SharedReadOnly, match=r"this array is shared .*: x = x\.copy\(\)"):
        write(mine)
    with pytest.raises(ValueError):  # numpy's own words for a view
        mine[:2][0] = 9
    assert mine.tolist() == [0, 1, 2]


def test_torch_takes_items_without_a_warning_and_writes_stay_here() -> None:
    mine = shared(np.zeros((4, 3), np.float32))
    batch = default_collate([mine[0], mine[1]])
    assert batch.shape == (2, 3)
    assert default_collate([mine, mine]).shape == (2, 4, 3)
    row = torch.from_numpy(mine[0])
    row += 1  # torch knows no read-only memory
    fd = os.dup(segment.find(mine.ctypes.data, mine.nbytes)[0].fd)  # type: ignore[index]
    try:
        assert os.pread(fd, 48, 0) == bytes(48)
    finally:
        os.close(fd)


def test_arrays_of_objects_stay() -> None:
    writer = SegmentWriter()
    with pytest.raises(NotPacked, match="array of Python objects"):
        pack(np.array([{}]), writer)
    writer.close()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).reshape(2, 3),
        torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.arange(10, dtype=torch.bfloat16)[::3],
        torch.tensor(True),
        torch.zeros(0, 5),
        torch.zeros(3, dtype=torch.complex64),
    ],
)
def test_a_tensor_comes_back(tensor: torch.Tensor) -> None:
    mine = shared(tensor)
    assert type(mine) is torch.Tensor
    assert mine.dtype is tensor.dtype
    assert torch.equal(mine, tensor)
    if tensor.ndim == 4:
        assert mine.stride() == tensor.stride()


def test_a_packed_spec_carries_the_segment_not_the_bytes() -> None:
    big = {
        "array": shared(np.arange(1 << 18)),
        "tensor": shared(torch.arange(1 << 18)),
        "list": shared([str(number) for number in range(50_000)]),
        "view": shared(np.arange(1 << 18))[10:],
    }
    packed_spec = SpecPickle(big)
    try:
        assert os.fstat(packed_spec.fd).st_size < 16384
        back = unpack(packed_spec.fd, [os.dup(fd) for fd in packed_spec.fds])
    finally:
        packed_spec.close()
    assert isinstance(back["array"], SharedArray)
    assert in_segment(back["array"])
    assert in_segment(back["view"])
    assert in_segment(back["tensor"].numpy())
    assert back["list"][49_999] == "49999"
    assert np.array_equal(back["view"], big["view"])
    assert torch.equal(back["tensor"], big["tensor"])


def test_elsewhere_an_array_is_pickled_by_value() -> None:
    for protocol in (2, 5):
        back = pickle.loads(pickle.dumps(shared(np.arange(5)), protocol))
        assert type(back) is np.ndarray
        assert back.flags.writeable
        assert back.tolist() == [0, 1, 2, 3, 4]


def test_a_segment_cannot_be_changed_and_is_gone_with_its_last_user() -> None:
    mine = shared(np.arange(1000))
    found = segment.find(mine.ctypes.data, mine.nbytes)
    assert found is not None
    fd = found[0].fd
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    view = mine[5:]
    del mine, found
    gc.collect()
    assert view[0] == 5
    assert in_segment(view)
    del view
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(fd)


def test_a_writer_given_up_leaves_nothing() -> None:
    before = set(os.listdir("/proc/self/fd"))
    writer = SegmentWriter()
    writer.put((b"abc",))
    writer.close()
    writer.close()
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_every_array_travels_in_its_segment(array: np.ndarray[Any, Any]) -> None:
    packed_spec = SpecPickle([shared(array)])
    try:
        (back,) = unpack(packed_spec.fd, packed_spec.fds)
        packed_spec.fds = []  # the reader's now
    finally:
        packed_spec.close()
    assert np.array_equal(back, array)
    assert back.dtype == array.dtype
    assert array.size == 0 or in_segment(back)
