"""Different data has different identities, equal data has equal ones, and what cannot be read equals nothing."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import functools
import importlib
import io
import operator
import re
import struct
import sys
import threading
import types
import weakref
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset

import stoker
from stoker._runtime.cache.digest import digest_of
from stoker._runtime.cache.identity import Identity, of_copy, of_dataset, of_function
from stoker.errors import CacheRefused


class Holder(Dataset[Any]):
    def __init__(self, held: Any) -> None:
        self.held = held

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3)


def frame(*values: int) -> Any:
    return pytest.importorskip("pandas").DataFrame({"label": values, "name": [str(each) for each in values]})


def table(*values: int) -> Any:
    return pytest.importorskip("pyarrow").table({"x": values})


def picture(value: int) -> Image.Image:
    return Image.new("RGB", (8, 8), (value, 1, 1))


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: int) -> None:
        self.x = x


def doubled(values: list[Any]) -> list[Any]:
    return [*values, values]


POINTS = {2: Point(2), 3: Point(3)}
PAIRS: dict[str, Callable[[int], Any]] = {
    "DataFrame": lambda x: frame(1, x),
    "Series": lambda x: frame(1, x).label,
    "strings of pandas": lambda x: frame(1, x).name,
    "Table": lambda x: table(1, x),
    "picture": picture,
    "pictures": lambda x: [picture(1), picture(x)],
    "deque": lambda x: collections.deque([1, Point(x)]),
    "array.array": lambda x: array.array("i", [x]),
    "bytearray": lambda x: bytearray([x]),
    "memoryview": lambda x: memoryview(bytes([x])),
    "BytesIO": lambda x: io.BytesIO(bytes([x])),
    "StringIO": lambda x: io.StringIO(str(x)),
    "range": range,
    "slice": slice,
    "pattern": lambda x: re.compile(f"a{x}"),
    "date": lambda x: datetime.date(2020, 1, x),
    "Decimal": decimal.Decimal,
    "itemgetter": operator.itemgetter,
    "mappingproxy": lambda x: types.MappingProxyType({1: x}),
    "struct": lambda x: struct.Struct(f"<{x}I"),
    "weak reference": lambda x: weakref.ref(POINTS[x]),
    "element": lambda x: ElementTree.fromstring(f"<a x='{x}'/>"),
    "defaultdict": lambda x: collections.defaultdict(int if x == 2 else list),
    "set": lambda x: {1, x, "a"},
    "set of objects": lambda x: {(1, Path(str(x)))},
    "sparse tensor": lambda x: (torch.eye(3) * x).to_sparse(),
    "masked array": lambda x: np.ma.array([1, 2], mask=[False, x == 3]),
    "numpy scalar": np.float32,
    "object": Point,
    "objects": lambda x: [Point(0), Point(x), Slotted(x)],
    "slots": lambda x: [Slotted(1), Slotted(x)],
    "list of itself": lambda x: doubled([x]),
    "partial": lambda x: functools.partial(max, x),
    "bound method": lambda x: [x].index,
    "closure": lambda x: lambda: x,
    "cached function": lambda x: functools.lru_cache(lambda: x),
    "nested module": lambda x: torch.nn.Sequential(
        torch.nn.Sequential(torch.nn.Sequential(torch.nn.Flatten(x)))
    ),
    "one of many": lambda x: [(Path("a"), place + (place == 12_345) * x) for place in range(30_000)],
    "one object of many": lambda x: [{"p": np.int64(place + (place == 999) * x)} for place in range(3_000)],
}


@pytest.mark.parametrize("kind", PAIRS)
def test_different_data_has_another_identity_and_equal_data_the_same(kind: str) -> None:
    made = PAIRS[kind]
    two, again, three = (of_dataset(Holder(made(x))) for x in (2, 2, 3))
    assert not two.opaque
    assert two.whole() == again.whole()
    assert two.whole() != three.whole()


HANDLES: dict[str, Callable[[], Any]] = {
    "lock": threading.Lock,
    "condition": threading.Condition,
    "local": threading.local,
    "generator": lambda: (each for each in "ab"),
    "generator of numbers": lambda: np.random.default_rng(),
}


@pytest.mark.parametrize("kind", HANDLES)
def test_handles_hold_no_data(kind: str) -> None:
    one, two = of_dataset(Holder(HANDLES[kind]())), of_dataset(Holder(HANDLES[kind]()))
    assert one.whole() == two.whole()
    assert not one.opaque


class Closed:
    """Like a library's object in C: it does not pickle."""

    def __init__(self, number: int) -> None:
        pattern: Any = re.compile("a")
        self.scanner = pattern.scanner("a" * number)

    def read(self) -> int:
        return 1


def test_what_cannot_be_read_equals_nothing_but_itself() -> None:
    closed = Holder(Closed(1))
    one, two = of_dataset(closed), of_dataset(closed)
    assert one.whole() != two.whole()
    assert list(one.opaque) == ["held.scanner"]
    assert of_dataset(closed, known=one).whole() == one.whole()
    sent = of_copy(closed, Identity(one.parts, one.opaque))
    assert of_dataset(closed, known=sent).whole() == one.whole()
    closed.held = Closed(1)
    assert of_dataset(closed, known=one).whole() != one.whole()


@pytest.mark.parametrize("where", [{"name": "opaque"}, {"path": "folder"}])
def test_a_store_for_others_is_refused_for_what_cannot_be_read(where: dict[str, Any], tmp_path: Path) -> None:
    where = {"path": str(tmp_path / "folder")} if "path" in where else where
    with pytest.raises(
        CacheRefused, match=r"dataset\.held\.scanner.*SRE_Scanner.*__stoker_identity__.*leave out path="
    ):
        stoker.cache(Holder(Closed(1)), "1MiB", **where)
    with pytest.raises(CacheRefused, match=r"function\.scanner"):
        stoker.cached(Closed(1).read, "1MiB", **where)


def test_a_class_can_say_what_its_instances_hold() -> None:
    class Said(Closed):
        def __stoker_identity__(self) -> bytes:
            return b"the same"

    one, two = of_dataset(Holder(Said(1))), of_dataset(Holder(Said(2)))
    assert one.whole() == two.whole()


def test_what_takes_too_long_to_read_is_not_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker._runtime.cache.digest._MOST_BYTES", 1000)
    monkeypatch.setattr("stoker._runtime.cache.digest._MOST_ITEMS", 1000)
    assert digest_of(np.zeros(100, np.uint8)).digest == digest_of(np.zeros(100, np.uint8)).digest
    assert "data" in digest_of(np.zeros(1001, np.uint8)).opaque
    assert "objects" in digest_of([[1] * 600, [2] * 600]).opaque
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert "deep" in digest_of(deep).opaque


def test_parts_of_one_mapped_file_are_different(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    np.arange(100).tofile(path)
    mapped = np.memmap(path, np.int64, "r")
    first, second = of_dataset(Holder(mapped[:50])), of_dataset(Holder(mapped[50:]))
    assert first.whole() != second.whole()
    assert of_dataset(Holder(mapped[50:])).whole() == second.whole()


def test_a_list_is_a_dataset_of_what_it_holds() -> None:
    one, two = [torch.zeros(3)] * 3, [torch.ones(3)] * 3
    assert of_dataset(one).whole() != of_dataset(two).whole()
    assert of_dataset(Subset(Holder(1), [0])).whole() != of_dataset(Subset(Holder(1), [1])).whole()


def test_parts_that_fetching_changes_count_as_they_were() -> None:
    point = Point(1)
    begun = of_dataset(Holder(point))
    point.x = 2
    other = Holder(Point(1))
    other.held.y = 3
    assert of_dataset(Holder(point)).as_begun(begun, frozenset({"held.x"})).whole() == begun.whole()
    assert of_dataset(other).as_begun(begun, frozenset({"held.x"})).whole() != begun.whole()
    assert of_dataset(other).as_begun(begun, frozenset({"held"})).whole() == begun.whole()


# Code


def in_module(name: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Import a file of the user's."""
    path = folder / f"{name}.py"
    path.write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        module = importlib.import_module(name)
    finally:
        sys.dont_write_bytecode = before
    monkeypatch.setitem(sys.modules, name, module)
    return module


LIBRARY = """
CFG = {{"a": {cfg}}}
TABLE = [{table}]
def inner(i):
    return i * {factor}
def value(i):
    return inner(i)
def later(i):
    return i + {later}
"""
USER = """
import stk_lib
from stk_lib import CFG, TABLE
def through(i):
    return stk_lib.value(i)
def by_name(i):
    return getattr(stk_lib, "later")(i)
def imported(i):
    import stk_lib as other
    return other.later(i)
def setting(i):
    return CFG["a"] + TABLE[0] + i
"""


def identities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **values: int) -> dict[str, bytes]:
    filled = {"cfg": 1, "table": 1, "factor": 1, "later": 1} | values
    in_module("stk_lib", LIBRARY.format(**filled), tmp_path, monkeypatch)
    user = in_module("stk_user", USER, tmp_path, monkeypatch)
    names = ("through", "by_name", "imported", "setting")
    return {name: of_function(getattr(user, name)).whole() for name in names}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("factor", {"through", "by_name", "imported"}),
        ("later", {"by_name", "imported"}),
        ("cfg", {"by_name", "imported", "setting"}),
        ("table", {"by_name", "imported", "setting"}),
    ],
)
def test_code_and_globals_of_other_modules_count(
    changed: str, expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = identities(tmp_path, monkeypatch)
    assert identities(tmp_path, monkeypatch) == before
    after = identities(tmp_path, monkeypatch, **{changed: 77})
    assert {name for name in before if before[name] != after[name]} == expected


def test_results_on_a_disk_are_made_anew_when_the_code_behind_them_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = []
    for values in ({}, {}, {"factor": 7}, {"factor": 7, "cfg": 5}):
        identities(tmp_path, monkeypatch, **values)
        user = sys.modules["stk_user"]
        through, setting = (
            stoker.cached(getattr(user, name), "1MiB", path=tmp_path / "kept", name=name)
            for name in ("through", "setting")
        )
        known = [each.cache_info()["entries"] for each in (through, setting)]
        found.append((through(3), setting(3), *known))
    assert found == [(3, 5, 0, 0), (3, 5, 1, 1), (21, 5, 0, 1), (21, 9, 1, 0)]
    assert caplog.text.count("has samples of another dataset") == 2


def test_all_of_the_file_counts_while_a_global_is_not_defined_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for factor in (1, 1, 2):
        text = (
            "from stoker._runtime.cache.identity import of_function\n"
            "def load(i):\n    return below(i)\n"
            "identity = of_function(load)\n"
            f"def below(i):\n    return i * {factor}\n# {'x' * factor}\n"
        )
        found.append(in_module("stk_below", text, tmp_path, monkeypatch).identity)
    assert [each.opaque for each in found] == [{}] * 3
    assert found[0].whole() == found[1].whole() != found[2].whole()


GLOBAL: dict[str, Any] = {"a": 1}


def test_a_global_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(i: int) -> Any:
        return GLOBAL, i

    monkeypatch.setitem(GLOBAL, "b", Closed(1).scanner)
    (what,) = of_function(load).opaque.values()
    assert "global GLOBAL of tests.unit.test_cache_identity" in what


# Stores


class Labels(Holder):
    def __getitem__(self, index: int) -> Any:
        return int(self.held.label.iloc[index])


def test_two_frames_share_no_store_and_a_replaced_one_is_seen() -> None:
    train = stoker.cache(Labels(frame(1, 2, 3)), "1MiB")
    val = stoker.cache(Labels(frame(7, 8, 9)), "1MiB")
    for _ in range(2):
        assert [[each[place] for place in range(3)] for each in (train, val)] == [[1, 2, 3], [7, 8, 9]]
    val.held = frame(70, 80, 90)
    assert [val[place] for place in range(3)] == [70, 80, 90]


def test_folds_of_one_length_share_no_store() -> None:
    rows = [[torch.full((3,), float(place)), place] for place in range(6)]
    folds = [stoker.cache(Subset(rows, indices), "1MiB") for indices in ([0, 1, 2], [3, 4, 5], [0, 1, 5])]  # type: ignore[arg-type]
    for _ in range(2):
        found = [[each[place][1] for place in range(3)] for each in folds]
        assert found == [[0, 1, 2], [3, 4, 5], [0, 1, 5]]


def test_lists_of_pictures_share_no_store() -> None:
    train, val = (stoker.cache([picture(x), picture(1)], "1MiB") for x in (2, 3))
    for _ in range(2):
        assert (train[0].getpixel((0, 0)), val[0].getpixel((0, 0))) == ((2, 1, 1), (3, 1, 1))


class Reader:
    """Counts its calls, so fetching changes it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls = 0

    def read(self, index: int) -> int:
        self.calls += 1
        return self.number * 100 + index


class Read(Holder):
    def __getitem__(self, index: int) -> Any:
        return self.held.read(index)


def test_a_reader_that_counts_is_still_another_reader() -> None:
    train, val = stoker.cache(Read(Reader(1)), "1MiB"), stoker.cache(Read(Reader(2)), "1MiB")
    assert (train[1], val[1], train[1], val[1]) == (101, 201, 101, 201)
    assert train.cache_info()["entries"] == 1
    val.held.number = 3
    assert val[1] == 301
    val.held = Reader(4)
    assert val[1] == 401


def test_methods_of_two_objects_are_two_functions() -> None:
    one, two = (stoker.cached(Reader(number).read, "1MiB") for number in (1, 2))
    assert (one(1), two(1), one(1), two(1)) == (101, 201, 101, 201)


def test_a_decorated_method_knows_its_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    class Decorated:
        def __init__(self, held: Any) -> None:
            self.held = held

        @stoker.cached(budget="1MiB")
        def load(self, index: int) -> int:
            return int(self.held.label.iloc[index])

    one, two = Decorated(frame(1, 2)), Decorated(frame(7, 8))
    read: list[object] = []
    found = "stoker._runtime.cache.function.of_dataset"

    def reading(each: Any, known: Any) -> Any:
        read.append(each)
        return of_dataset(each, known)

    monkeypatch.setattr(found, reading)
    for _ in range(3):
        assert (one.load(1), two.load(1)) == (2, 8)
    assert read == [one, two], "each is read once"
    owners = vars(Decorated)["load"]._owners
    assert len(owners) == 2
    del one
    read.clear()
    assert len(owners) == 1, "an instance that is gone is forgotten"


def test_a_decorated_method_keeps_nothing_for_others_of_an_instance_that_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Reading:
        def __init__(self, number: int) -> None:
            self.number = number
            self.held = Closed(1)

        @stoker.cached(budget="1MiB", path=tmp_path / "kept")
        def load(self, index: int) -> int:
            return self.number * 100 + index

        @stoker.cached(budget="1MiB")
        def read(self, index: int) -> int:
            return self.number * 100 + index

    one, two = Reading(1), Reading(2)
    for _ in range(2):
        assert (one.load(1), two.load(1), one.read(1), two.read(1)) == (101, 201, 101, 201)
    assert [vars(Reading)[name].cache_info()["entries"] for name in ("load", "read")] == [0, 2]
    assert "self.held.scanner holds what stoker cannot read" in caplog.text
