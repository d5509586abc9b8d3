"""stoker.share on datasets: what is replaced, what stays, and that a failure changes nothing."""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

import stoker
from stoker._pickling.segment import find
from stoker._sharing import share
from stoker._sharing.sizes import estimate
from stoker._sharing.storage import packing
from stoker._sharing.survey import Spot
from stoker.errors import UnsendableError

Pair = namedtuple("Pair", "names more")


def words(count: int = 2000) -> list[str]:
    return [f"/data/{number % 7}/{number}.jpg" for number in range(count)]


def array() -> Any:
    return np.arange(20_000)


def in_segment(obj: Any) -> bool:
    address = obj.data_ptr() if isinstance(obj, torch.Tensor) else obj.ctypes.data
    return find(address, obj.nbytes) is not None


class Files(Dataset[Any]):
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __getitem__(self, index: int) -> Any:
        return index

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


@dataclass
class Sample:
    name: str
    label: int


@dataclass(frozen=True)
class Frozen:
    names: list[str]


class Color(Enum):
    RED = 1
    BLUE = 2


class Slotted:
    __slots__ = ("empty", "names")

    def __init__(self, names: list[str]) -> None:
        self.names = names


def untouched(obj: Any) -> dict[str, int]:
    return {name: id(value) for name, value in vars(obj).items()}


def test_large_attributes_are_replaced_in_place_and_read_the_same() -> None:
    pairs = [(name, number) for number, name in enumerate(words())]
    table = {name: number for number, name in enumerate(words())}
    dataset = Files(
        pairs=pairs, table=table, names=set(words()), fixed=tuple(words()), array=array(),
        tensor=torch.arange(20_000.0), few=[1, 2], name="x",
    )  # fmt: skip
    few = dataset.few
    assert stoker.share(dataset) is dataset
    kinds = {name: type(value) for name, value in vars(dataset).items()}
    assert kinds == {
        "pairs": stoker.SharedList, "table": stoker.SharedDict, "names": stoker.SharedSet, "fixed": stoker.SharedTuple,
        "array": stoker.SharedArray, "tensor": torch.Tensor, "few": list, "name": str,
    }  # fmt: skip
    assert dataset.pairs == pairs
    assert dataset.table == table
    assert dataset.names == set(words())
    assert dataset.fixed == tuple(words())
    assert np.array_equal(dataset.array, array())
    assert torch.equal(dataset.tensor, torch.arange(20_000.0))
    assert in_segment(dataset.array)
    assert in_segment(dataset.tensor)
    assert dataset.few is few


def test_a_container_itself_is_answered_by_its_shared_counterpart() -> None:
    names = words()
    shared: Any = stoker.share(names)
    assert type(shared) is stoker.SharedList
    assert names == words()
    few: Any = stoker.share([1, 2, 3])  # named by the user: its size does not matter
    assert type(few) is stoker.SharedList
    assert stoker.share(shared) is shared


def test_a_container_of_large_containers_is_rebuilt_around_them() -> None:
    given = {"train": words(), "val": words(), "also": [{"names": words()}], "rate": 0.1}
    before = dict(given)
    shared: Any = stoker.share(given)
    assert {key: given[key] is before[key] for key in given} == dict.fromkeys(given, True)
    assert type(given["train"]) is list
    assert type(shared) is dict
    assert type(shared["train"]) is type(shared["also"][0]["names"]) is stoker.SharedList
    assert shared["rate"] == 0.1
    assert type(before["also"][0]["names"]) is list  # type: ignore[index]


def test_small_containers_objects_and_slots_are_looked_into() -> None:
    names = words()
    dataset = Files(
        splits={"train": words(), "rate": 0.5}, listed=[array(), 1], pair=Pair(words(), (words(), 3)),
        slotted=Slotted(words()), frozen=Frozen(words()), config=SimpleNamespace(names=names),
    )  # fmt: skip
    splits, listed = dataset.splits, dataset.listed
    stoker.share(dataset)
    assert dataset.splits is splits
    assert dataset.listed is listed
    assert type(splits["train"]) is stoker.SharedList
    assert type(listed[0]) is stoker.SharedArray
    assert type(dataset.pair) is Pair
    assert type(dataset.pair.names) is type(dataset.pair.more[0]) is stoker.SharedList
    assert dataset.pair.more[1] == 3
    for holder in (dataset.slotted, dataset.frozen, dataset.config):
        assert type(holder.names) is stoker.SharedList
        assert holder.names == names


def test_nested_datasets() -> None:
    inner = Files(samples=words(), __len__=None)
    parts = [Subset(inner, list(range(5000))), Subset(inner, list(range(5000, 9000)))]
    joined: Any = ConcatDataset(parts)
    tensors = TensorDataset(torch.arange(20_000), torch.arange(20_000))
    outer = Files(joined=joined, tensors=tensors)
    stoker.share(outer)
    assert outer.joined is joined
    assert joined.datasets == parts
    assert [type(part.indices) for part in parts] == [stoker.SharedList] * 2
    assert type(inner.samples) is stoker.SharedList
    assert all(in_segment(tensor) for tensor in tensors.tensors)


def test_an_object_in_two_places_is_packed_once() -> None:
    names = words()
    dataset = Files(samples=names, imgs=names, pair=(names, 1), inner=Files(names=names))
    stoker.share(dataset)
    assert type(dataset.samples) is stoker.SharedList
    assert dataset.imgs is dataset.pair[0] is dataset.inner.names is dataset.samples


def test_cycles_end() -> None:
    dataset: Any = Files(names=words())
    ring: list[Any] = [dataset]
    ring.append((ring, words()))
    dataset.me, dataset.ring = dataset, ring
    stoker.share(dataset)
    assert dataset.me is dataset
    assert ring[1][0] is ring
    assert type(ring[1][1]) is type(dataset.names) is stoker.SharedList
    looped: list[Any] = [words()]
    looped.append(looped)
    shared = stoker.share(looped)
    assert shared[1] is shared
    assert type(looped[0]) is list


def test_views_of_one_buffer_stay_views_of_one_buffer() -> None:
    whole = array()
    square = torch.arange(90_000, dtype=torch.float32).reshape(300, 300)
    dataset = Files(
        whole=whole,
        tail=whole[5:],
        back=whole[::-1],
        tensor=torch.from_numpy(whole),
        square=square,
        turned=square.T,
    )
    expected = {name: np.asarray(value).copy() for name, value in vars(dataset).items()}
    stoker.share(dataset)
    for name, value in expected.items():
        assert np.array_equal(np.asarray(getattr(dataset, name)), value), name
        assert in_segment(getattr(dataset, name).T if name == "turned" else np.asarray(dataset.whole))
    assert dataset.tail.ctypes.data == dataset.whole.ctypes.data + 5 * 8
    assert np.shares_memory(dataset.back, dataset.whole)
    assert dataset.tensor.data_ptr() == dataset.whole.ctypes.data
    assert dataset.turned.untyped_storage().data_ptr() == dataset.square.untyped_storage().data_ptr()
    assert dataset.turned.stride() == (1, 300)


def test_thin_views_do_not_take_the_whole_buffer_along() -> None:
    whole = np.zeros((100, 200_000), np.uint8)
    dataset = Files(left=whole[:, :1000], right=whole[:, 500:1500])
    report = stoker.share(dataset, report=True)
    assert report.shared_bytes == 200_000
    stoker.share(dataset)
    assert dataset.left.shape == (100, 1000)


class Tagged(np.ndarray):
    pass


def test_what_repeats_its_memory_is_not_written_out() -> None:
    row = torch.arange(20_000)
    rows = np.broadcast_to(np.arange(20_000.0), (1000, 20_000))
    dataset = Files(rows=rows, same=torch.zeros(1).expand(100_000), tensor=row.expand(1000, 20_000))
    same = dataset.same
    report = stoker.share(dataset, report=True)
    assert report.shared_bytes == 2 * 160_000
    stoker.share(dataset)
    assert dataset.rows.shape == (1000, 20_000)
    assert dataset.rows.strides == (0, 8)
    assert dataset.tensor.stride() == (0, 1)
    assert torch.equal(dataset.tensor[999], row)
    assert dataset.same is same


LEFT_ALONE: dict[str, tuple[Any, str]] = {
    "grad": (lambda: torch.zeros(20_000, requires_grad=True), "requires grad"),
    "parameter": (lambda: torch.nn.Parameter(torch.zeros(20_000), requires_grad=False), "a Parameter"),
    "torch shared": (lambda: torch.zeros(20_000).share_memory_(), "share_memory_"),
    "meta": (lambda: torch.zeros(20_000, device="meta"), "on meta"),
    "sparse": (lambda: torch.ones(20_000).to_sparse(), "dense"),
    "list of parameters": (lambda: [torch.nn.Parameter(torch.zeros(9)) for _ in range(2000)], "Parameter"),
    "list of shared tensors": (lambda: [torch.zeros(9000).share_memory_() for _ in range(20)], "shared by torch"),
    "objects": (lambda: np.array(words(), object), "tolist"),
    "subclass": (lambda: array().view(Tagged), "Tagged"),
    "defaultdict": (lambda: defaultdict(int, dict.fromkeys(words())), "dict(it)"),
    "counter": (lambda: Counter(words()), "dict(it)"),
    "deque": (lambda: deque(words()), "list(it)"),
    "module": (lambda: torch.nn.Linear(300, 300), "Module"),
    "bytes": (lambda: bytes(70_000), "frombuffer"),
    "unstable keys": (lambda: {object(): word for word in words()}, "hash"),
    "locks": (lambda: [threading.Lock() for _ in range(3000)], "lock"),
    "callables": (lambda: [partial(print, word) for word in words()], "partial"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "reason"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_is_left_alone_says_why(make: Any, reason: str) -> None:
    value = make()
    dataset = Files(value=value, names=words())
    entries = {entry.path: entry for entry in stoker.share(dataset, report=True).entries}
    assert entries["dataset.value"].action == "kept"
    assert reason in entries["dataset.value"].reason
    stoker.share(dataset)
    assert dataset.value is value
    assert type(dataset.names) is stoker.SharedList


def test_a_mapped_file_is_left_alone(tmp_path: Any) -> None:
    np.save(tmp_path / "rows.npy", array())
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    dataset = Files(mapped=mapped, plain=np.asarray(mapped))
    report = stoker.share(dataset, report=True)
    assert ["mapped file" in entry.reason for entry in report.entries] == [True, True]
    assert stoker.share(dataset).mapped is mapped


def test_of_a_loader_only_the_dataset_is_looked_into() -> None:
    dataset = Files(names=words())
    loader: Any = stoker.DataLoader(dataset, sampler=list(range(5000)))
    assert stoker.share(loader) is loader
    assert type(dataset.names) is stoker.SharedList
    assert type(loader.sampler) is list


def test_functions_and_what_they_hold_are_not_looked_into() -> None:
    names = words()
    dataset = Files(bound=names.__getitem__, part=partial(len, names), closure=lambda: names, kind=Files)
    before = untouched(dataset)
    stoker.share(dataset)
    assert untouched(dataset) == before
    assert dataset.part.args[0] is names


def test_what_is_left_alone_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stoker"):
        stoker.share(Files(counts=Counter(words())))
        stoker.share(Counter(words()))
    levels = [(record.levelname, "dict(it) can be shared" in record.message) for record in caplog.records]
    assert levels == [("INFO", True), ("WARNING", True)]


def test_items_that_drag_everything_along_are_not_packed() -> None:
    """Each of them refers to the dataset: pickled one by one they would take the dataset's size squared."""
    dataset = Files(rows=[], names=words(20_000))
    dataset.rows.extend(SimpleNamespace(home=Holder(dataset.names), number=number) for number in range(1100))
    kept = next(entry for entry in stoker.share(dataset, report=True).entries if entry.path == "dataset.rows")
    assert kept.action == "kept"
    stoker.share(dataset)
    assert type(dataset.rows) is list


class Holder:
    def __init__(self, names: Any) -> None:
        self.names = names


def test_a_list_of_datasets_in_tuples_is_not_packed() -> None:
    inner = Files(names=words())
    dataset = Files(index=[(inner, number) for number in range(3000)])
    stoker.share(dataset)
    assert type(dataset.index) is list
    assert dataset.index[0][0] is inner
    assert type(inner.names) is stoker.SharedList


def test_instances_of_own_classes_are_decoded_on_access() -> None:
    samples = [Sample(name, number) for number, name in enumerate(words())]
    dataset = Files(samples=samples)
    entry = stoker.share(dataset, report=True).entries[0]
    assert "changes to one are not kept" in entry.reason
    stoker.share(dataset)
    assert dataset.samples == samples
    assert dataset.samples[3] is not dataset.samples[3]


def test_members_of_an_enum_stay_themselves() -> None:
    dataset = Files(colors=[Color(1 + number % 2) for number in range(20_000)])
    stoker.share(dataset)
    assert type(dataset.colors) is stoker.SharedList
    assert dataset.colors[3] is Color.BLUE


def broken(where: str) -> Any:
    handles: Any = {
        "direct": threading.Lock(),
        "dict": {"handle": threading.Lock()},
        "deep": [{"x": (1, threading.Lock())}],
    }
    return (
        [{"n": 1, "v": 2} for _ in range(16)] + [handles[where]] + [{"n": 1, "v": word} for word in words()]
    )


@pytest.mark.parametrize(
    ("where", "path"),
    [("direct", "[16] (lock)"), ("dict", "[16]['handle'] (lock)"), ("deep", "[16][0]['x'][1] (lock)")],
)
def test_what_cannot_be_packed_is_named_and_nothing_changes(where: str, path: str) -> None:
    dataset = Files(first=words(), inner=Files(samples=broken(where)), last=array())
    before, inner_before = untouched(dataset), untouched(dataset.inner)
    with pytest.raises(UnsendableError) as caught:
        stoker.share(dataset)
    assert str(caught.value).startswith(
        f"dataset.inner.samples{path} cannot be shared: cannot pickle '_thread.lock'"
    )
    assert "make it anew in __setstate__" in str(caught.value)
    assert untouched(dataset) == before
    assert untouched(dataset.inner) == inner_before
    refused = next(entry for entry in stoker.share(dataset, report=True).entries if entry.action == "refused")
    assert refused.reason == str(caught.value)


def test_an_interrupt_while_packing_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Files(first=words(), second=words())
    before = untouched(dataset)
    stock = packing.pack

    def interrupted(obj: Any, writer: Any) -> Any:
        if obj is dataset.second:
            raise KeyboardInterrupt
        return stock(obj, writer)

    monkeypatch.setattr(share, "pack", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stoker.share(dataset)
    assert untouched(dataset) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_failure_while_replacing_is_undone(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    dataset = Files(first=words(), pair=(words(), 1), table={"names": words()}, last=words())
    before, names = untouched(dataset), dataset.table["names"]
    stock = Spot.put
    failed: list[str] = []

    def put(self: Spot, value: Any) -> None:
        stock(self, value)
        if self.path == "dataset.last" and not failed:
            failed.append(self.path)
            raise error("no")

    monkeypatch.setattr(Spot, "put", put)
    expected = KeyboardInterrupt if error is KeyboardInterrupt else UnsendableError
    with pytest.raises(expected):
        stoker.share(dataset)
    assert failed
    assert untouched(dataset) == before
    assert dataset.table["names"] is names


def test_ordered_dicts_and_thresholds() -> None:
    dataset = Files(table=OrderedDict.fromkeys(words()), names=words(100))
    stoker.share(dataset, min_bytes=1000)
    assert type(dataset.table) is stoker.SharedDict
    assert type(dataset.names) is stoker.SharedList
    other = Files(names=words(2000))
    stoker.share(other, min_bytes=1 << 30)
    assert type(other.names) is list


def test_sharing_again_changes_nothing() -> None:
    dataset = Files(names=words(), array=array(), tensor=torch.arange(20_000))
    before = untouched(stoker.share(dataset))
    assert untouched(stoker.share(dataset)) == before
    assert {entry.reason for entry in stoker.share(dataset, report=True).entries} == {"already shared"}


def test_an_estimate_is_close_and_counts_repeated_items_once() -> None:
    names = words(5000)
    exact = names.__sizeof__() + sum(name.__sizeof__() for name in names)
    assert abs(estimate(names) - exact) < exact / 10
    assert estimate([names[0]] * 5000) < 45_000
    assert estimate(array()) == array().nbytes
