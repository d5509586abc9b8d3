"""Cases that share got wrong once: subclasses, odd objects, aliases, and what plain containers can do."""

from __future__ import annotations

import errno
import math
import os
import pickle
from operator import and_, or_, sub, xor
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker._pickling import segment
from stoker._pickling.segment import write_at
from stoker._pickling.spec_pickle import SpecPickle, unpack
from stoker.errors import SharedReadOnly


class Files(Dataset[Any]):
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def words(count: int = 2000) -> list[str]:
    return [f"/data/{number % 7}/{number}.jpg" for number in range(count)]


def shared(obj: Any) -> Any:
    return stoker.share(obj)


class Folded(str):
    """Equal whatever the case."""

    def __eq__(self, other: object) -> bool:
        return self.lower() == str(other).lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class Word(str):
    pass


def test_times_in_different_units_keep_them() -> None:
    items = [np.timedelta64(1, "h"), np.timedelta64(60, "m")]
    assert [item.dtype for item in shared(items)] == [item.dtype for item in items]


def test_keys_of_dicts_keep_their_types() -> None:
    items: list[Any] = [{"a": 1}, {Word("a"): 2}]
    assert type(next(iter(shared(items)[1]))) is Word


@pytest.mark.parametrize("key", [math.nan, (1, math.nan), Folded("Abc")])
def test_keys_that_are_not_found_by_value_are_not_packed(key: Any) -> None:
    plain = {key: 1, "b": 2}
    assert shared(plain) is plain
    assert shared({key}) == {key}
    assert key not in shared({"b": 2, 1: 3})


def test_views_of_a_dict() -> None:
    plain = {"a": 1.0, "b": 2.0, "c": 3.0}
    mine = shared(plain)
    for view in ("keys", "values", "items"):
        assert list(reversed(getattr(mine, view)())) == list(reversed(getattr(plain, view)()))
    assert 2 in mine.values()
    assert 4 not in mine.values()


@pytest.mark.parametrize("bounds", [(), (1,), (2, 4), (-2,), (-9, -1), (9,)])
def test_index_is_that_of_a_list(bounds: tuple[int, ...]) -> None:
    plain = [5, 1, 5, 2, 5]
    for value in (5, 2, 7):
        try:
            expected: Any = plain.index(value, *bounds)
        except ValueError:
            with pytest.raises(ValueError, match=f"{value} is not in list"):
                shared(plain).index(value, *bounds)
        else:
            assert shared(plain)[:].index(value, *bounds) == expected


def test_a_set_has_no_hash_and_a_frozenset_has_its_own() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(shared({1, 2}))
    assert hash(shared(frozenset((1, 2)))) == hash(frozenset((1, 2)))


def test_what_numpy_makes_of_an_array_is_private() -> None:
    mine = shared(np.arange(20_000))
    for made in (np.zeros_like(mine), np.concatenate([mine, mine]), *np.split(mine.copy(), 2)):
        assert type(made) is np.ndarray
        made += 1
        made.sort()
    assert all(type(part) is np.ndarray for part in np.split(mine, 2))
    with pytest.raises(SharedReadOnly):
        mine += 1


def test_small_views_do_not_bring_their_storage_along() -> None:
    whole = torch.arange(200.0 * 500).reshape(200, 500)
    rows = [{f"key {number % 7}": row} for number, row in enumerate(whole)]  # no common layout: pickled
    report = stoker.share(Files(rows=rows), report=True)
    assert report.shared_bytes < 2 * whole.nbytes
    mine = shared(rows)
    assert torch.equal(mine[9]["key 2"], whole[9])


def test_tensors_shared_by_torch_stay_shared_wherever_they_are() -> None:
    for wrap in (lambda flag: (flag, "x" * 300), lambda flag: {id(flag): (flag, "x" * 300)}):
        slots = [wrap(torch.zeros(1).share_memory_()) for _ in range(300)]
        dataset = shared(Files(slots=slots, names=words()))
        assert dataset.slots is slots
        assert type(dataset.names) is stoker.SharedList


def test_what_refers_to_the_same_many_times_over_stays_small() -> None:
    lists: Any = ["a"] * 10
    dicts: Any = {str(number): "a" for number in range(10)}
    for _ in range(7):
        lists, dicts = [lists] * 10, dict.fromkeys(dicts, dicts)
    for nested in (lists, [dicts] * 10):
        assert len(pickle.dumps(shared(nested)._layout)) < 100_000


class Delegating:
    """Looks everything up in what it wraps, even before there is something."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


class Proxy:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("not now")

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


ODD: Any = (
    Proxy,
    lambda: [Proxy()] * 3,
    lambda: mock.Mock(spec=list),
    lambda: mock.MagicMock(spec=np.ndarray),
    lambda: Delegating("a"),
)


@pytest.mark.parametrize("make", ODD, ids=range(len(ODD)))
def test_objects_that_do_not_let_themselves_be_looked_at_stay(make: Any) -> None:
    odd = make()
    dataset = Files(odd=odd, names=words(), many=[Delegating(word) for word in words()])
    str(stoker.share(dataset, report=True))
    shared(dataset)
    assert dataset.__dict__["odd"] is odd
    assert type(dataset.__dict__["names"]) is stoker.SharedList


def test_a_cache_to_be_filled_stays_a_list() -> None:
    dataset: Any = Files(cache=[None] * 20_000)
    (entry,) = stoker.share(dataset, report=True).entries
    assert "a cache" in entry.reason
    shared(dataset).cache[3] = "filled"


class Listed(Dataset[Any], list[Any]):  # type: ignore[misc]
    pass


def test_of_a_dataset_that_is_a_list_the_attributes_are_packed() -> None:
    dataset: Any = Listed(words())
    dataset.paths = words()
    assert shared(dataset) is dataset
    assert type(dataset.paths) is stoker.SharedList
    assert list(dataset) == words()


def test_operators_of_sets_are_those_of_sets() -> None:
    for kind in (set, frozenset):
        plain = kind((1, 2, 3))
        mine = shared(plain)
        for operator in (and_, or_, sub, xor):
            for other in ({2, 9}, frozenset((2, 9))):
                for one, two in (
                    (operator(mine, other), operator(plain, other)),
                    (operator(other, mine), operator(other, plain)),
                ):
                    assert one == two
                    assert type(one) is type(two)
            with pytest.raises(TypeError):
                operator(mine, [2])
        assert type(mine.copy()) is type(mine.union([4])) is kind


def test_what_is_no_pair_is_no_item_of_a_dict() -> None:
    items = shared({"a": 1}).items()
    assert [entry in items for entry in (("a", 1), ("a", 2), None, "a", (1,), (1, 2, 3))] == [True] + [
        False
    ] * 5


def test_what_is_shared_already_stays_shared_within_a_list() -> None:
    names = shared(words())
    for items in ([names] * 3, [(names[number:], number) for number in range(2000)]):
        assert shared(Files(items=items)).items is items


def test_tensors_of_dtypes_that_torch_does_not_unpickle() -> None:
    tensors = [torch.arange(6).to(torch.uint16).reshape(2, 3).T, torch.zeros(0, dtype=torch.uint32)]
    mixed = [(number, *tensors) if number % 2 else "text" for number in range(9)]
    assert torch.equal(shared(mixed)[1][1].int(), tensors[0].int())
    assert shared(mixed)[1][2].shape == (0,)
    packed_spec = SpecPickle(tensors)
    try:
        back = unpack(packed_spec.fd, [])
    finally:
        packed_spec.close()
    assert torch.equal(back[0].int(), tensors[0].int())
    assert back[0].stride() == tensors[0].stride()
    assert back[1].dtype is torch.uint32


def test_a_call_keeps_one_descriptor_and_says_so_when_there_are_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    kept = [shared(words(100)) for _ in range(5)]
    assert len(os.listdir("/proc/self/fd")) == before + 5
    assert kept[4] == words(100)

    def refuse(*_: Any, **__: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(segment, "anonymous_file", refuse)
    with pytest.raises(
        OSError, match=r"Too many open files: .* in one call, or raise ulimit -n\. Nothing was changed"
    ):
        shared(words(100))


def test_a_disk_that_is_full_is_told_with_how_far_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset: Any = Files(first=words(), second=words(20_000))
    before = dict(vars(dataset))

    def write(fd: int, data: Any, at: int) -> int:
        if at > 100_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_at(fd, data, at)

    monkeypatch.setattr(segment, "write_at", write)
    with pytest.raises(OSError, match=r"No space left on device: the shared copy .* Nothing was changed"):
        shared(dataset)
    assert {name: value is vars(dataset)[name] for name, value in before.items()} == {
        "first": True,
        "second": True,
    }


def test_what_the_user_named_and_stays_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    shared({object(): 1})
    assert [record.levelname for record in caplog.records] == ["WARNING"]


class Pair(NamedTuple):
    name: str
    label: int


class Noted(Pair):
    """Has attributes beside its fields."""


def test_named_tuples_are_packed_by_field() -> None:
    pairs = [Pair(word, number) for number, word in enumerate(words())]
    mine = shared(pairs)
    assert mine._layout.name == "Pairs of (strings by folder, int16)"
    assert mine == pairs
    assert type(mine[3]) is Pair
    noted = [Noted(word, number) for number, word in enumerate(words())]
    noted[5].more = "kept"  # type: ignore[attr-defined]
    assert shared(noted)[5].more == "kept"


class Link:
    def __init__(self, next_: Any) -> None:
        self.next = next_


def test_a_chain_too_long_to_be_pickled_stays() -> None:
    chain: list[Any] = [None]
    for _ in range(5000):
        chain.append(Link(chain[-1]))
    dataset: Any = Files(chain=chain, names=words())
    assert shared(dataset).chain is chain
    assert type(dataset.names) is stoker.SharedList


def test_datasets_in_named_tuples_stay_themselves() -> None:
    inner: Any = Files(names=words())
    index = [Pair(inner, number) for number in range(3000)]
    dataset: Any = shared(Files(index=index))
    assert dataset.index is index
    assert type(inner.names) is stoker.SharedList
