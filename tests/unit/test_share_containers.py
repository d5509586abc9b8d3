"""Shared lists, tuples, dicts and sets read like what they were made from."""

from __future__ import annotations

import copy
import math
import pickle
import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker._pickling.segment import SegmentWriter
from stoker._sharing.containers.dicts import SharedDict
from stoker._sharing.containers.lists import SharedList, SharedTuple
from stoker._sharing.containers.sets import SharedSet
from stoker._sharing.storage.index import stable_hash
from stoker._sharing.storage.packing import pack
from stoker._sharing.storage.pickled import NotPacked
from stoker.errors import CannotShare, SharedReadOnly


def shared(obj: Any) -> Any:
    writer = SegmentWriter()
    try:
        packed = pack(obj, writer)
        return packed.open(writer.seal())
    finally:
        writer.close()


def layout(obj: Any) -> str:
    writer = SegmentWriter()
    try:
        return pack(obj, writer).layout
    finally:
        writer.close()


class Point(NamedTuple):
    x: int
    y: int


PATHS = [f"/data/train/class_{row % 10:04d}/image_{row:08d}.jpg" for row in range(200)]

GENERATOR = (number for number in range(1))

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary(max_size=5)
)
nested = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)


def kinds(value: Any) -> Any:
    """The types all the way down: 1, 1.0 and True are equal."""
    if isinstance(value, list | tuple):
        return type(value), [kinds(item) for item in value]
    if isinstance(value, dict):
        return dict, [(key, kinds(item)) for key, item in value.items()]
    return type(value), math.copysign(1, value) if isinstance(value, float) else None


@settings(max_examples=150, deadline=None)
@given(st.lists(nested, max_size=12))
def test_any_list_comes_back_exactly(items: list[Any]) -> None:
    list_ = shared(items)
    assert list_ == items
    assert kinds(list(list_)) == kinds(items)
    assert len(list_) == len(items)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        scalars | st.tuples(scalars, scalars) | st.frozensets(st.integers(0, 5), max_size=3),
        nested,
        max_size=12,
    ),
    scalars,
)
def test_any_dict_comes_back_exactly(items: dict[Any, Any], probe: Any) -> None:
    dict_ = shared(items)
    assert dict_ == items
    assert list(dict_.items()) == list(items.items())
    assert (probe in dict_) == (probe in items)
    assert dict_.get(probe, "nothing") == items.get(probe, "nothing")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-5, 5) | st.text(max_size=2), max_size=20), st.slices(20))
def test_slices_are_those_of_the_list(items: list[Any], cut: slice) -> None:
    assert shared(items)[cut] == items[cut]
    assert shared(items)[cut][::-1] == items[cut][::-1]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (PATHS, "strings by folder"),
        ([f"{row:x}" for row in range(100)], "strings"),
        (["cat", "dog"] * 50, "few strings"),
        (list(range(300)), "int16"),
        ([-1, 2**40], "int64"),
        ([2**80], "pickled"),
        ([0.5, 1.0], "float64"),
        ([True, False], "bool"),
        ([b"a", b""], "bytes"),
        ([1, 2.0], "pickled"),
        ([None, None], "one value"),
        ([None, 3], "int8 or None"),
        (list(zip(PATHS, range(200), strict=True)), "tuples of (strings by folder, uint8)"),
        (
            [{"box": [1.0, 2.0], "id": row} for row in range(5)],
            "dicts of (lists of (float64, float64), int8)",
        ),
        ([[1], [2, 3]], "lists of int8"),
        ([{1, 2}, {3}], "sets of int8"),
        ([np.float32(1)] * 2, "numpy float32"),
        ([np.zeros((2, 3)), np.ones((1, 3))], "arrays of float64"),
        ([torch.zeros(2, dtype=torch.bfloat16)], "tensors of bfloat16"),
        ([Point(1, 2)], "pickled"),
        ([Path(path) for path in PATHS], "PosixPath of strings by folder"),
    ],
)
def test_layouts(items: list[Any], expected: str) -> None:
    assert layout(items) == expected
    back = shared(items)
    assert [type(item) for item in back] == [type(item) for item in items]
    if expected.startswith(("arrays", "tensors")):
        assert all((one == other).all() for one, other in zip(back, items, strict=True))
    else:
        assert back == items


def test_the_reading_side_of_a_list() -> None:
    list_ = shared(PATHS)
    assert issubclass(type(list_), Sequence)
    assert not isinstance(list_, list)
    assert (list_[-1], list_[np.int64(3)], list_[torch.tensor(4)]) == (PATHS[-1], PATHS[3], PATHS[4])
    assert PATHS[7] in list_
    assert "nowhere" not in list_
    assert (list_.index(PATHS[7]), list_.count(PATHS[7])) == (7, 1)
    assert list(reversed(list_)) == PATHS[::-1]
    assert sorted(list_, reverse=True) == sorted(PATHS, reverse=True)
    assert list_ + ["x"] == [*PATHS, "x"]  # noqa: RUF005
    assert ["x"] + list_ == ["x", *PATHS]  # noqa: RUF005
    assert list_[:2] * 2 == PATHS[:2] * 2
    assert list_ != PATHS[:-1]
    assert list_ != tuple(PATHS)
    assert list_ < ["z"]
    assert random.Random(0).sample(list_, 3) == random.Random(0).sample(PATHS, 3)
    assert np.array(list_).tolist() == PATHS
    assert "200 items: strings by folder" in repr(list_)
    with pytest.raises(IndexError, match="list index out of range"):
        list_[200]
    with pytest.raises(TypeError, match="list indices must be integers or slices, not str"):
        list_["a"]
    with pytest.raises(TypeError):
        hash(list_)


def test_a_tuple_stays_one() -> None:
    tuple_ = shared(tuple(PATHS))
    assert type(tuple_) in (SharedTuple,)
    assert tuple_ == tuple(PATHS)
    assert tuple_ != PATHS
    assert hash(tuple_) == hash(tuple(PATHS))
    assert type(pickle.loads(pickle.dumps(tuple_))) is tuple
    with pytest.raises(TypeError):
        tuple_[0] = "x"


def test_the_reading_side_of_a_dict() -> None:
    plain = {path: row for row, path in enumerate(PATHS)}
    dict_ = shared(plain)
    assert issubclass(type(dict_), Mapping)
    assert dict_[PATHS[5]] == 5
    assert list(dict_) == list(dict_.keys()) == PATHS
    assert list(dict_.values()) == list(range(200))
    assert list(reversed(dict_)) == PATHS[::-1]
    assert dict_.keys() & {PATHS[0], "x"} == {PATHS[0]}
    assert (PATHS[0], 0) in dict_.items()
    assert dict(dict_) == {**dict_} == plain
    assert dict_ | {"x": 1} == plain | {"x": 1}
    assert len(dict_) == 200
    assert "200 items: strings by folder to uint8" in repr(dict_)
    with pytest.raises(KeyError, match="nowhere"):
        dict_["nowhere"]
    with pytest.raises(TypeError, match="unhashable"):
        dict_.get([])
    assert shared(OrderedDict(plain)) == plain


def test_keys_that_are_equal_are_found_whatever_their_type() -> None:
    dict_ = shared({1: "one", "a": 2, (1, "b"): 3, None: 4, 2.5: 5})
    assert [dict_[key] for key in (True, 1.0, np.int64(1), np.str_("a"), (1.0, "b"), None, 2.5)] == [
        "one", "one", "one", 2, 3, 4, 5,
    ]  # fmt: skip
    assert object() not in dict_


def test_a_hash_does_not_depend_on_the_process() -> None:
    # Python's own differs with PYTHONHASHSEED: these are pinned.
    assert stable_hash("stoker") == 2975913125
    assert stable_hash(("a", 1, None)) == stable_hash(("a", 1.0, None))


def test_keys_without_a_stable_hash_leave_the_dict_as_it_is() -> None:
    with pytest.raises(NotPacked, match="keys of type object have no hash"):
        layout({object(): 1})


def test_the_reading_side_of_a_set() -> None:
    set_ = shared(set(PATHS))
    assert issubclass(type(set_), Set)
    assert type(set_) in (SharedSet,)
    assert PATHS[3] in set_
    assert "x" not in set_
    assert set_ == set(PATHS)
    assert set_ & {PATHS[0], "x"} == {PATHS[0]}
    assert type(set_ | {"x"}) is set
    assert set_.issuperset(PATHS[:3])
    assert set_.union(["x"]) == {*PATHS, "x"}
    assert type(pickle.loads(pickle.dumps(shared(frozenset(PATHS))))) is frozenset


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.append(1), lambda x: x.extend([1]), lambda x: x.insert(0, 1), lambda x: x.pop(), lambda x: x.remove(1),
        lambda x: x.clear(), lambda x: x.sort(), lambda x: x.reverse(), lambda x: x.__setitem__(0, 1),
        lambda x: x.__delitem__(0), lambda x: x.__iadd__([1]), lambda x: x.__imul__(2), random.shuffle,
    ],
)  # fmt: skip
def test_writing_to_a_list_says_what_to_do(write: Any) -> None:
    list_ = shared([1, 2, 3])
    with pytest.raises(SharedReadOnly, match=r"this list is shared by all workers .*: x = x\.copy\(\)"):
        write(list_)
    assert list_ == [1, 2, 3]
    private = list_.copy()
    write(private)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.__setitem__("a", 2), lambda x: x.__delitem__("a"), lambda x: x.update(a=2), lambda x: x.pop("a"),
        lambda x: x.popitem(), lambda x: x.setdefault("b", 1), lambda x: x.clear(), lambda x: x.__ior__({"b": 1}),
    ],
)  # fmt: skip
def test_writing_to_a_dict_says_what_to_do(write: Any) -> None:
    dict_ = shared({"a": 1})
    with pytest.raises(SharedReadOnly, match="this dict is shared"):
        write(dict_)
    write(dict_.copy())


@pytest.mark.parametrize("name", ["add", "discard", "remove", "__ior__", "__isub__", "update"])
def test_writing_to_a_set_says_what_to_do(name: str) -> None:
    with pytest.raises(SharedReadOnly, match="this set is shared"):
        getattr(shared({1}), name)({1})


def test_a_decoded_item_is_the_readers_own() -> None:
    list_ = shared([{"a": [1]}, {"a": [2]}])
    list_[0]["a"].append(5)
    assert list_[0] == {"a": [1]}


def test_what_all_items_refer_to_is_written_once() -> None:
    names = [f"class {number}" for number in range(1000)]
    items = [(path, names) for path in PATHS]
    writer = SegmentWriter()
    packed = pack(items, writer)
    assert packed.nbytes < 40_000
    assert packed.open(writer.seal()) == items


def test_a_list_that_holds_itself_is_packed_too() -> None:
    items: list[Any] = [1]
    items.append(items)
    assert shared(items)[1][1][0] == 1


def test_copies_are_the_thing_itself_and_pickles_are_plain() -> None:
    for plain in ([1, 2], {"a": 1}, {1, 2}):
        container = shared(plain)
        assert copy.copy(container) is copy.deepcopy(container) is container
        back = pickle.loads(pickle.dumps(container))
        assert type(back) is type(plain)
        assert back == plain


def test_containers_are_made_by_share_only() -> None:
    for kind in (SharedList, SharedTuple, SharedDict, SharedSet):
        with pytest.raises(TypeError, match=r"made by stoker\.share"):
            kind([1])


def test_items_of_local_classes_travel_with_the_container() -> None:
    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

    list_ = shared([Local(1), Local(2)])
    assert [item.value for item in list_] == [1, 2]
    assert type(list_[0]) is Local


@pytest.mark.parametrize(
    ("items", "path"),
    [
        ([1, "a", lambda: (yield)], "[2]"),
        ([(1, "a"), (2, GENERATOR)], "[1][1]"),
        ([{"a": 1}, {"a": GENERATOR}], "[1]['a']"),
        ([[1], [2, 3, GENERATOR]], "[1][2]"),
        ([None, None, GENERATOR], "[2]"),
        ({"k": [GENERATOR]}, "['k'][0]"),
    ],
)
def test_what_cannot_be_packed_is_named(items: Any, path: str) -> None:
    if path == "[2]" and callable(items[2]):
        assert shared(items)[2] is items[2]  # functions travel
        return
    with pytest.raises(CannotShare, match=r"\(generator\) cannot be packed") as caught:
        layout(items)
    assert caught.value.path == path
