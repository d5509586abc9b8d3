"""What is written arrives equal: value, dtype, shape, strides, aliasing, type and attributes."""

from __future__ import annotations

import collections
import dataclasses
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from stoker._runtime.scheduler.types import SlotRef
from stoker._runtime.transport.arena import Arena
from stoker._runtime.transport.dtypes import DTYPES, carrier
from stoker._runtime.transport.writer import ArenaWriter
from stoker.testing import heap_codec

Send = Callable[[Any], Any]


def arena_send(arena: Arena, writer: ArenaWriter) -> Send:
    """Both sides in one process; a fresh slot for every batch, because leases stay alive in the tests."""
    slots = iter(range(10_000))

    def send(obj: Any) -> Any:
        index = next(slots)
        arena.prepare(index)
        receipt = writer.open(index).write(obj)
        region = arena.lease(SlotRef(index, 0), receipt.nbytes)
        return region.load(receipt.root_offset, receipt.root_bytes)

    return send


@pytest.fixture(params=["arena", "heap"])
def send(request: pytest.FixtureRequest) -> Iterator[Send]:
    if request.param == "heap":
        yield lambda obj: heap_codec.loads(heap_codec.dumps(obj))
        return
    arena = Arena()
    fd = os.dup(arena.fd)
    writer = ArenaWriter(fd, arena.stride)
    yield arena_send(arena, writer)
    writer.close()
    os.close(fd)
    arena.close()


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor: equal also where comparison of its dtype is undefined or NaN is involved."""
    dense = tensor.detach().resolve_conj().resolve_neg()
    dense = dense.view(carrier(dense.dtype)).contiguous()
    return torch.frombuffer(bytearray(dense.numpy().tobytes() or b"-"), dtype=torch.uint8)


def assert_same(got: torch.Tensor, want: torch.Tensor) -> None:
    assert type(got) is type(want)
    assert got.dtype is want.dtype
    assert got.shape == want.shape
    assert got.stride() == want.stride()
    assert got.requires_grad == (want.requires_grad and want.is_leaf)
    assert torch.equal(bits(got), bits(want))


def byte_pattern(dtype: torch.dtype, count: int) -> torch.Tensor:
    """``count`` elements of any dtype, made from bytes, because most exotic dtypes can do nothing else."""
    raw = torch.arange(count * dtype.itemsize, dtype=torch.uint8) % 2
    return torch.empty(0, dtype=dtype).set_(raw.untyped_storage(), 0, (count,), (1,))


PLAIN_DTYPES = [dtype for dtype in DTYPES if not str(dtype).startswith("torch.q")]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", PLAIN_DTYPES, ids=str)
def test_every_dtype(send: Send, dtype: torch.dtype) -> None:
    one = byte_pattern(dtype, 12)
    for want in (one, one.view(3, 4).t(), one[::2], one[3], one[:0]):
        assert_same(send(want), want)
        assert_same(send({"nested": [want]})["nested"][0], want)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(24).view(2, 3, 4).permute(2, 0, 1),
        lambda: torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        lambda: torch.arange(5).expand(3, 5),
        lambda: torch.arange(3).view(3, 1).expand(3, 1000),
        lambda: torch.arange(10).as_strided((4, 4), (2, 1)),
        lambda: torch.tensor(3.5),
        lambda: torch.empty(3, 0, 2),
        lambda: torch.empty(0, 3).t(),
        lambda: torch.zeros([1] * 40),
        lambda: torch.arange(8).view(1, 8)[:, ::2],
        lambda: torch.randn(1, 1, 4, 5).to(memory_format=torch.channels_last),
        lambda: torch.arange(6).as_strided((1, 3), (50, 1)),
        lambda: torch.randn(3, dtype=torch.complex64).conj(),
        lambda: torch.randn(3, dtype=torch.complex64).conj().imag.clone(),
        lambda: torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
        lambda: torch.ones(3, requires_grad=True),
        lambda: torch.ones(3, requires_grad=True) * 2,
        lambda: torch.nn.Parameter(torch.ones(2, 2), requires_grad=False),
        lambda: torch.nn.Parameter(torch.ones(2, 2)),
    ],
)
def test_tensor_shapes_and_histories(send: Send, make: Callable[[], torch.Tensor]) -> None:
    want = make()
    got = send(want)
    if want.untyped_storage().nbytes() == want.nbytes or not want.is_neg():
        assert_same(got, want)
    assert torch.equal(got.detach(), want.detach().resolve_neg().resolve_conj())
    with torch.no_grad():
        got.zero_() if got.is_contiguous() else None


def test_inference_tensors_travel(send: Send) -> None:
    with torch.inference_mode():
        want = torch.arange(4.0)
        got = send([want])[0]
    assert got.tolist() == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_sparse_layouts(send: Send, layout: str) -> None:
    dense = torch.eye(4) * torch.arange(1, 5)
    blocks = ((2, 2),) if layout.startswith("bs") else ()
    want = dense.to_sparse() if layout == "coo" else getattr(dense, f"to_sparse_{layout}")(*blocks)
    got = send({"sparse": want})["sparse"]
    assert got.layout is want.layout
    assert torch.equal(got.to_dense(), dense)


def test_coalesced_flag_is_kept(send: Send) -> None:
    twice = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), [1.0, 2.0], (2, 2), check_invariants=True)
    loose, tight = send([twice, twice.coalesce()])
    assert not loose.is_coalesced()
    assert loose._nnz() == 2
    assert tight.is_coalesced()
    assert tight._nnz() == 1


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors(send: Send) -> None:
    parts = [torch.ones(2, 2), torch.zeros(3, 2)]
    strided = send(torch.nested.nested_tensor(parts))
    jagged = send([torch.nested.nested_tensor(parts, layout=torch.jagged)])[0]
    for got in (strided, jagged):
        assert [part.tolist() for part in got.unbind()] == [part.tolist() for part in parts]
    assert jagged.layout is torch.jagged


@pytest.mark.filterwarnings("ignore:.*quantiz:UserWarning", "ignore:.*quantiz:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_quantised_tensors(send: Send) -> None:
    values = torch.randn(4, 4)
    whole = torch.quantize_per_tensor(values, 0.1, 2, torch.qint8)
    rows = torch.quantize_per_channel(
        values, torch.ones(4), torch.zeros(4, dtype=torch.long), 0, torch.quint8
    )
    got_whole, got_rows = send([whole, rows])
    assert torch.equal(got_whole.int_repr(), whole.int_repr())
    assert (got_whole.q_scale(), got_whole.q_zero_point()) == (whole.q_scale(), 2)
    assert torch.equal(got_rows.int_repr(), rows.int_repr())
    assert torch.equal(got_rows.q_per_channel_scales(), rows.q_per_channel_scales())


def test_meta_tensor(send: Send) -> None:
    got = send([torch.empty(3, 2, device="meta")])[0]
    assert got.device.type == "meta"
    assert got.shape == (3, 2)


class Tagged(torch.Tensor):
    tag: Any


def test_subclass_with_attributes(send: Send) -> None:
    want = torch.arange(4.0).as_subclass(Tagged)
    want.tag = {"name": "seven", "more": torch.ones(2)}
    got = send({"image": want})["image"]
    assert type(got) is Tagged
    assert got.tag["name"] == "seven"
    assert got.tag["more"].tolist() == [1, 1]
    assert got.as_subclass(torch.Tensor).tolist() == [0, 1, 2, 3]


def test_attributes_of_a_plain_tensor_survive_even_in_a_cycle(send: Send) -> None:
    want: Any = torch.arange(3)
    want.me = want
    got = send([want])[0]
    assert got.me is got
    assert got.tolist() == [0, 1, 2]


def test_subclass_view_of_a_large_storage_ships_only_itself() -> None:
    assert len(heap_codec.dumps([torch.zeros(1_000_000)[:10].as_subclass(Tagged)])) < 2000


def test_one_storage_stays_one_storage(send: Send) -> None:
    base = torch.arange(10)
    left, right, middle = send([base[:5], base[5:], base[3:8]])
    assert left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()
    middle += 100
    assert left.tolist() == [0, 1, 2, 103, 104]
    assert right.tolist() == [105, 106, 107, 8, 9]


def test_aliases_of_different_dtypes(send: Send) -> None:
    floats = torch.zeros(8)
    ints = floats.view(torch.int32)[3:]
    got_floats, got_ints, got_bytes = send([floats[1:], ints, floats.view(torch.uint8)[5:9]])
    got_ints[0] = 0x3F800000
    assert got_floats.tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert got_bytes.shape == (4,)


def test_same_object_twice_arrives_as_one(send: Send) -> None:
    tensor, array, empty = torch.ones(3), np.ones(3), torch.empty(0)
    got = send([tensor, tensor, {"array": array, "again": [array, tensor]}, empty, empty])
    assert got[0] is got[1] is got[2]["again"][1]
    assert got[2]["array"] is got[2]["again"][0]
    assert got[3] is got[4]


def test_small_views_of_one_large_storage_travel_alone() -> None:
    base = torch.zeros(1_000_000)
    assert len(heap_codec.dumps(base[:10])) < 400
    encoded = heap_codec.dumps([base[:10], base[-10:]])
    assert len(encoded) < 600
    first, last = heap_codec.loads(encoded)
    first.fill_(1)
    assert last.tolist() == [0] * 10


def test_sparse_strides_are_compacted_and_keep_their_order() -> None:
    base = torch.arange(10_000.0).view(100, 100)
    columns = base[:, ::50].t()
    encoded = heap_codec.dumps(columns)
    got = heap_codec.loads(encoded)
    assert len(encoded) < 2000
    assert torch.equal(got, columns)
    assert got.stride() == (1, 2)
    halves = base.bfloat16()[::50, ::50]
    assert torch.equal(heap_codec.loads(heap_codec.dumps(halves)), halves)
    wide = base[::50, :1].expand(2, 500)
    assert heap_codec.loads(heap_codec.dumps(wide)).stride() == (1, 0)


def test_tensor_and_array_over_the_same_memory(send: Send) -> None:
    tensor = torch.arange(6)
    got = send({"tensor": tensor, "array": tensor.numpy()[2:]})
    got["tensor"][3] = 77
    assert got["array"].tolist() == [2, 77, 4, 5]


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(6, dtype=">i4"),
        lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        lambda: np.arange(10)[::-1],
        lambda: np.arange(20).reshape(4, 5)[::-2, 1:],
        lambda: np.arange(10_000).reshape(100, 100)[::50, ::-50],
        lambda: np.array(3.5),
        lambda: np.empty((3, 0)),
        lambda: np.array(["a", "bcd"]),
        lambda: np.array([b"a", b"bcd"]),
        lambda: np.array(["2020-01-01", "NaT"], "M8[ns]"),
        lambda: np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", ">f8")]),
        lambda: np.zeros(2, "V5"),
        lambda: np.array([1, "two", None], dtype=object),
        lambda: np.array([True, False]),
        lambda: np.arange(3, dtype=np.float16),
        lambda: np.ones(3, np.complex128),
        lambda: np.float32(2.5),
        lambda: np.matrix([[1, 2], [3, 4]]),
        lambda: np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    ],
)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_numpy(send: Send, make: Callable[[], Any]) -> None:
    want = make()
    got = send({"array": want})["array"]
    assert type(got) is type(want)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)
    if isinstance(got, np.ndarray):
        assert got.flags.writeable


def test_numpy_broadcast_stays_small_and_views_stay_views() -> None:
    broadcast = np.broadcast_to(np.arange(3), (100_000, 3))
    encoded = heap_codec.dumps(broadcast)
    assert len(encoded) < 1000
    np.testing.assert_array_equal(heap_codec.loads(encoded), broadcast)
    base = np.arange(10)
    left, right = heap_codec.loads(heap_codec.dumps([base[:6], base[4:]]))
    left[5] = -1
    assert right.tolist() == [4, -1, 6, 7, 8, 9]


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Sample:
    image: Any
    label: int


class Buffered:
    """Gives its bytes out of band by itself, as arrow and pandas objects do."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Buffered, (pickle.PickleBuffer(self.data),)


def test_other_objects(send: Send) -> None:
    batch = {
        "bytes": b"\0\1" * 50,
        "text": ["é", ""],
        "pair": Pair(torch.ones(2), np.zeros(2)),
        "sample": Sample(torch.ones(2, 2).bfloat16(), 3),
        "ordered": collections.OrderedDict(a=torch.zeros(1)),
        "default": collections.defaultdict(list, a=[torch.zeros(1)]),
        3: {1, 2},
        "none": None,
        "slice": slice(1, 2),
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
    }
    got = send(batch)
    assert list(got) == list(batch)
    assert type(got["pair"]) is Pair
    assert got["pair"].x.tolist() == [1, 1]
    assert got["sample"].label == 3
    assert got["sample"].image.dtype is torch.bfloat16
    assert type(got["ordered"]) is collections.OrderedDict
    assert got["default"].default_factory is list
    for key in ("bytes", "text", 3, "none", "slice", "size", "dtype"):
        assert got[key] == batch[key]


def test_packed_sequence(send: Send) -> None:
    want = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.zeros(2)])
    got = send(want)
    assert torch.equal(got.data, want.data)
    assert torch.equal(got.batch_sizes, want.batch_sizes)


def test_storages_and_their_tensors_stay_together(send: Send) -> None:
    tensor = torch.arange(4, dtype=torch.int16)
    got_tensor, got_storage = send([tensor[1:], tensor.untyped_storage()])
    assert got_storage.nbytes() == 8
    got_storage[2] = 9
    assert got_tensor.tolist() == [9, 2, 3]


@pytest.mark.parametrize(
    "data", [b"abc" * 100, bytearray(b"abc"), b"", np.arange(5)], ids=["ro", "rw", "empty", "np"]
)
def test_foreign_buffers_between_leaves(send: Send, data: Any) -> None:
    first, foreign, last = send([torch.ones(2), Buffered(data), np.arange(3)])
    assert first.tolist() == [1, 1]
    assert bytes(foreign.data) == bytes(data)
    assert last.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "batch", [[], (), {}, [[]], None, 5, "text", [None], {1: torch.ones(1)}, [(), torch.ones(1)]]
)
def test_empty_and_odd_containers(send: Send, batch: Any) -> None:
    assert repr(send(batch)) == repr(batch)


def test_cycles(send: Send) -> None:
    batch: list[Any] = [torch.ones(1)]
    batch.append(batch)
    got = send(batch)
    assert got[1] is got


def test_what_cannot_be_imported_travels_by_value(send: Send) -> None:
    @dataclasses.dataclass
    class Local:
        value: Any
        act: Any

    got = send({"local": Local(torch.ones(2), lambda x: x + 1), "other": torch.zeros(3)})
    assert got["local"].act(1) == 2
    assert got["local"].value.tolist() == [1, 1]
    assert isinstance(got["local"], Local)
    assert got["other"].tolist() == [0, 0, 0]


def test_decoded_memory_is_writable_and_no_view(send: Send) -> None:
    got = send([torch.zeros(2, 2), np.zeros(2)])
    got[0].add_(1).requires_grad_()
    got[1][:] = 2
    assert not got[0]._is_view()
    assert got[0].tolist() == [[1, 1], [1, 1]]


def test_decoding_on_many_threads() -> None:
    blobs = [heap_codec.dumps({"x": [torch.full((3,), number), np.full(3, number)]}) for number in range(8)]
    wrong: list[int] = []

    def decode(number: int) -> None:
        for _ in range(20):
            tensor, array = heap_codec.loads(blobs[number])["x"]
            if tensor.tolist() != [number] * 3 or array.tolist() != [number] * 3:
                wrong.append(number)

    threads = [threading.Thread(target=decode, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
