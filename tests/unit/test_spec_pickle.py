"""SpecPickle: packed once, loaded from a private mapping, here in one process."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import context
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch

from stoker._pickling.spec_pickle import SpecPickle, unpack
from stoker._runtime.protocol.worker_spec import WorkerSpec
from stoker._sharing.storage import pickled
from stoker.errors import UnsendableError
from stoker.testing import holdings
from tests.unit.makers import spec

SPAWN = multiprocessing.get_context("spawn")
Ship = Callable[[Any], Any]


@pytest.fixture
def ship() -> Iterator[Ship]:
    """Through a packed spec and back; what multiprocessing does not close itself is closed with the test."""
    packed_specs: list[SpecPickle] = []

    def there_and_back(obj: Any) -> Any:
        packed_specs.append(SpecPickle(obj))
        return unpack(packed_specs[-1].fd, packed_specs[-1].fds)

    yield there_and_back
    for packed_spec in packed_specs:
        packed_spec.close()


@pytest.fixture(scope="module")
def value() -> Any:
    """multiprocessing's heap stays with the process: it is there before the guard of any test looks."""
    return SPAWN.Value("i", 3)


class Reader:
    def __init__(self, handle: Any) -> None:
        self.handle = handle


class Rows:
    """A dataset with something inside."""

    def __init__(self, **inside: Any) -> None:
        self.__dict__.update(inside)


class Careful:
    """Drops its handle, and has another thing that cannot travel."""

    def __init__(self) -> None:
        self.handle = threading.Lock()
        self.other = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"other": self.other}


class Slotted:
    __slots__ = "handle"  # one name as a string is legal, and easy to take for six

    def __init__(self) -> None:
        self.handle = threading.Lock()


def test_lambdas_and_local_classes_travel_by_value(ship: Ship) -> None:
    factor = 3

    class Local:
        def __getitem__(self, index: int) -> int:
            return index * factor

    dataset, function = ship((Local(), lambda value: value + factor))
    assert dataset[5] == 15
    assert function(1) == 4


def test_the_whole_spec_travels(ship: Ship) -> None:
    got = ship(spec([1, 2, 3], collate_fn=lambda rows: sum(rows)))
    assert isinstance(got, WorkerSpec)
    assert got.dataset == [1, 2, 3]
    assert got.collate_fn([1, 2]) == 3


@pytest.mark.parametrize(
    "array",
    [
        np.arange(10_000),
        np.arange(12.0).reshape(3, 4).T,
        np.arange(20)[::3],
        np.empty((0, 3), np.int16),
        np.array(5.0),
        np.zeros(3, dtype=[("x", "<i4"), ("y", "<f8")]),
    ],
    ids=["large", "transposed", "strided", "empty", "scalar", "records"],
)
def test_arrays_arrive_equal_and_writable(ship: Ship, array: Any) -> None:
    got = ship({"array": array})["array"]
    assert got.dtype == array.dtype
    assert np.array_equal(got, array)
    got[...] = 0


def test_large_arrays_lie_out_of_band_and_once() -> None:
    array = np.ones(1 << 16)
    packed_spec = SpecPickle([array, array])
    assert array.nbytes <= os.fstat(packed_spec.fd).st_size < array.nbytes + 16_384
    packed_spec.close()


def test_what_a_reader_writes_stays_its_own() -> None:
    packed_spec = SpecPickle({"array": np.zeros(5000), "tensor": torch.zeros(5000)})
    first, second = (unpack(packed_spec.fd, packed_spec.fds) for _ in range(2))
    first["array"][:] = 7
    first["tensor"].fill_(7)
    third = unpack(packed_spec.fd, packed_spec.fds)
    packed_spec.close()
    for other in (second, third):
        assert not other["array"].any()
        assert not other["tensor"].any()
    assert (first["array"] == 7).all()


def test_readers_outlive_the_packed_spec() -> None:
    packed_spec = SpecPickle(torch.arange(5000))
    got = unpack(packed_spec.fd, packed_spec.fds)
    packed_spec.close()
    packed_spec.close()
    assert torch.equal(got, torch.arange(5000))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).view(2, 3),
        torch.arange(6.0).view(2, 3).t(),
        torch.zeros(3, dtype=torch.bfloat16),
        torch.tensor(3.5),
        torch.empty(0, 4),
        torch.arange(3).expand(4, 3),
        torch.ones(3, requires_grad=True),
        torch.nn.Parameter(torch.ones(2)),
    ],
    ids=[
        "plain", "transposed", "bfloat16", "scalar", "empty", "expanded", "grad", "parameter",
    ],
)  # fmt: skip
def test_tensors_arrive_equal(ship: Ship, tensor: torch.Tensor) -> None:
    got = ship([tensor])[0]
    assert type(got) is type(tensor)
    assert (got.dtype, got.shape, got.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    assert got.requires_grad == tensor.requires_grad
    assert got.is_shared() is False
    assert torch.equal(got, tensor)


def test_a_sparse_tensor_arrives_equal(ship: Ship) -> None:
    got = ship(torch.eye(3).to_sparse())
    torch._utils._sparse_tensors_to_validate.clear()  # torch keeps what it unpickled until the next torch.load
    assert got.layout is torch.sparse_coo
    assert torch.equal(got.to_dense(), torch.eye(3))


def test_views_of_one_storage_stay_views_of_one_storage(ship: Ship) -> None:
    base = torch.arange(5000)
    rows, tail, other = ship((base, base[4000:], torch.arange(10)))
    rows[4000] = -1
    assert tail[0] == -1
    assert rows.untyped_storage().data_ptr() == tail.untyped_storage().data_ptr()
    assert other.tolist() == list(range(10))


def test_datasets_over_one_storage_stay_over_one_storage(ship: Ship) -> None:
    base = torch.arange(5000)
    first, second, shared = ship([Rows(rows=base[:3000]), Rows(rows=base[2000:]), Rows(rows=base)])
    first.rows[2500] = -1
    assert second.rows[500] == -1
    assert shared.rows[2500] == -1


def test_a_storage_is_shipped_once() -> None:
    base = torch.zeros(1 << 16)
    packed_spec = SpecPickle([base[start:] for start in range(10)])
    assert os.fstat(packed_spec.fd).st_size < base.nbytes + 16_384
    packed_spec.close()


def test_shared_tensors_stay_shared() -> None:
    tensor = torch.zeros(100).share_memory_()
    packed_spec = SpecPickle({"counts": tensor})
    got = unpack(packed_spec.fd, [os.dup(fd) for fd in packed_spec.fds])["counts"]
    packed_spec.close()
    got[3] = 5
    assert tensor[3] == 5
    tensor[4] = 6
    assert got[4] == 6


def test_a_shared_value_stays_shared(ship: Ship, value: Any) -> None:
    value.value = 3
    got = ship([value])[0]
    with got.get_lock():
        got.value += 4
    assert value.value == 7


def test_a_lock_stays_the_same_lock(ship: Ship) -> None:
    lock = SPAWN.Lock()
    got = ship(lock)
    assert lock.acquire(block=False)
    assert not got.acquire(block=False)
    lock.release()
    assert got.acquire(block=False)
    got.release()


def test_a_queue_stays_the_same_queue() -> None:
    queue = SPAWN.SimpleQueue()
    packed_spec = SpecPickle(queue)
    got = unpack(packed_spec.fd, [os.dup(fd) for fd in packed_spec.fds])
    packed_spec.close()
    queue.put("hello")
    assert got.get() == "hello"
    got.close()
    queue.close()


def test_descriptors_are_closed_when_packing_fails(value: Any) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UnsendableError):
        SpecPickle([value, threading.Lock()])
    assert len(os.listdir("/proc/self/fd")) == before


def test_packing_leaves_no_spawning_process_behind() -> None:
    SpecPickle([1]).close()
    with pytest.raises(UnsendableError):
        SpecPickle(threading.Lock())
    assert context.get_spawning_popen() is None


@pytest.mark.parametrize(
    ("obj", "named"),
    [
        (spec(Rows(reader=Reader(threading.Lock()))), "dataset.reader.handle (lock)"),
        (spec(Rows(files={"a": 1, "b": [0, threading.Lock()]})), "dataset.files['b'][1] (lock)"),
        (spec([], worker_init_fn=threading.Lock()), "worker_init_fn (lock)"),
        (spec(Careful()), "dataset.other (lock)"),
        (spec(Slotted()), "dataset.handle (lock)"),
        (spec(Rows(rows=(n for n in range(3)))), "dataset.rows (generator)"),
        (Reader(threading.Lock()), "Reader.handle (lock)"),
    ],
)
def test_the_unpicklable_part_is_named_by_its_path(obj: Any, named: str) -> None:
    with pytest.raises(UnsendableError) as caught:
        SpecPickle(obj)
    assert str(caught.value).startswith(f"{named} cannot be sent to a worker: ")
    assert isinstance(caught.value, TypeError)
    assert caught.value.__cause__ is not None


def test_an_unpicklable_part_in_a_cycle_is_found() -> None:
    rows = Rows(name="rows")
    rows.__dict__["own"] = rows
    rows.__dict__["handle"] = threading.Lock()
    with pytest.raises(UnsendableError, match=r"^dataset\.handle \(lock\)"):
        SpecPickle(spec(rows))


def test_without_memfd_a_packed_spec_is_a_nameless_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    packed_spec = SpecPickle({"array": np.arange(100)})
    assert os.fstat(packed_spec.fd).st_nlink == 0
    assert unpack(packed_spec.fd, [])["array"].sum() == 4950
    packed_spec.close()


def test_the_mapping_goes_with_the_object() -> None:
    packed_spec = SpecPickle(np.zeros(5000))
    got = unpack(packed_spec.fd, [])
    packed_spec.close()
    with open("/proc/self/maps") as maps:
        assert "stoker-spec" in maps.read()
    del got
    gc.collect()
    with open("/proc/self/maps") as maps:
        assert "stoker-spec" not in maps.read()


SCRIPT = """
class Point:
    x = 3

    def twice(self):
        return twice(self.x)


def twice(number):
    return 2 * number
"""


def test_what_a_spawned_process_calls_its_script_travels_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("__mp_main__")
    exec(SCRIPT, module.__dict__)
    monkeypatch.setitem(sys.modules, "__mp_main__", module)
    with pytest.raises(pickled._Foreign):
        list(pickled._dumped([module.Point()]))
    packed_spec = SpecPickle(module.Point())
    cloudpickle.unregister_pickle_by_value(module)
    monkeypatch.delitem(sys.modules, "__mp_main__")
    try:
        assert unpack(packed_spec.fd, packed_spec.fds).twice() == 6
    finally:
        packed_spec.close()


def test_large_buffers_may_be_written_while_readers_start() -> None:
    array = np.arange(3 << 20)
    packed_spec = SpecPickle([array, "rest"], later=True)
    try:
        read_fd, write_fd = os.pipe()
        child = os.fork()
        if child == 0:  # waits for the lock, which it did not inherit
            code = 1
            try:
                back, rest = unpack(packed_spec.fd, [])
                os.write(write_fd, f"{rest} {int(back[-1])}".encode())
                code = 0
            finally:
                os._exit(code)
        os.close(write_fd)
        packed_spec.load()
        packed_spec.load()
        with open(read_fd, "rb") as answer:
            assert answer.read() == f"rest {array[-1]}".encode()
        os.waitpid(child, 0)
    finally:
        packed_spec.close()


def test_a_reader_whose_sender_is_gone_says_so() -> None:
    packed_spec = SpecPickle(np.arange(3 << 20), later=True)
    try:
        with pytest.raises(UnsendableError, match="did not arrive"):
            unpack(packed_spec.fd, [])
    finally:
        packed_spec.close()


def test_small_packed_specs_are_whole_at_once() -> None:
    packed_spec = SpecPickle(np.arange(5000), later=True)
    try:
        assert unpack(packed_spec.fd, [])[-1] == 4999
    finally:
        packed_spec.close()


def test_a_packed_object_that_nobody_got_closes_its_descriptors() -> None:
    """Ctrl-C may come between its construction and the store of the result."""
    before = holdings().descriptors
    packed = SpecPickle({"one": torch.zeros(3), "two": torch.zeros(3).share_memory_()})
    assert holdings().descriptors - before
    child = os.fork()
    if child == 0:  # it has descriptors of its own, which are no business of this object
        del packed
        os._exit(0)
    os.waitpid(child, 0)
    assert holdings().descriptors - before
    del packed
    assert holdings().descriptors == before


def test_closing_again_closes_nothing() -> None:
    packed = SpecPickle([1])
    packed.close()
    with open(os.devnull) as other:
        packed.close()
        os.fstat(other.fileno())
