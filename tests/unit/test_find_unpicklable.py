"""An object that cannot be pickled is named by the path a user would write, with a remedy."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import functools
import io
import mmap
import multiprocessing
import queue
import select
import sqlite3
import threading
import weakref
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from stoker._pickling.spec_pickle import SpecPickle
from stoker._runtime.protocol.worker_spec import WorkerSpec
from stoker.errors import UnsendableError

LOCK = threading.Lock()


def spec(dataset: Any, collate_fn: Any = list) -> WorkerSpec:
    return WorkerSpec(
        dataset=dataset, iterable=False, auto_collation=True, collate_fn=collate_fn, drop_last=False,
        worker_init_fn=None, num_workers=1, rng="batch", rank=0, own_collate=False,
    )  # fmt: skip


def told(dataset: Any = None, collate_fn: Any = list) -> str:
    with pytest.raises(UnsendableError) as caught:
        SpecPickle(spec(dataset, collate_fn))
    assert caught.value.__cause__ is not None
    return str(caught.value)


class Rows:
    """A dataset with something inside."""

    def __init__(self, **inside: Any) -> None:
        self.__dict__.update(inside)

    def make(self) -> None: ...


class Reduced:
    """Is rebuilt from its arguments; what else it holds stays here."""

    def __init__(self, handle: Any) -> None:
        self.unsent = threading.Lock()
        self.handle = handle

    def __reduce__(self) -> Any:
        return Reduced, (self.handle,)


class Converted(Reduced):
    def __reduce__(self) -> Any:
        return Reduced, ({"inner": self.handle},)


class Listed(Reduced):
    """Its state is what it likes, not a dict."""

    def __reduce__(self) -> Any:
        return Rows, (), [1, self.handle]

    def __setstate__(self, state: Any) -> None: ...


class Failing:
    def __getstate__(self) -> Any:
        raise RuntimeError("I stay here")


class Chained(list[Any]): ...


class Slotted:
    __slots__ = ("__weakref__", "handle")

    def __init__(self, handle: Any) -> None:
        self.handle = handle


@dataclass
class Record:
    name: str
    handle: Any


Pair = collections.namedtuple("Pair", "name handle")


@pytest.mark.parametrize(
    ("inside", "named"),
    [
        ({"reader": Rows(handle=LOCK)}, "dataset.reader.handle"),
        ({"files": {"a": [0, 1, 2, LOCK]}}, "dataset.files['a'][3]"),
        ({"rows": [*range(5000), (1, LOCK), *range(5000)]}, "dataset.rows[5000][1]"),
        ({"rows": {number: LOCK if number == 4000 else number for number in range(5000)}}, "dataset.rows[4000]"),
        ({"deep": [[[[[[[[[LOCK]]]]]]]]]}, "dataset.deep" + "[0]" * 9),
        ({"reader": Slotted(LOCK)}, "dataset.reader.handle"),
        ({"reader": Record("x", LOCK)}, "dataset.reader.handle"),
        ({"reader": Pair("x", LOCK)}, "dataset.reader.handle"),
        ({"reader": Reduced(LOCK)}, "dataset.reader.handle"),
        ({"reader": Reduced({"x": LOCK})}, "dataset.reader.handle['x']"),
        ({"reader": Converted(LOCK)}, "dataset.reader.__reduce__()[1][0]['inner']"),
        ({"reader": Listed(LOCK)}, "dataset.reader.handle"),
        ({"reader": Chained([1, LOCK])}, "dataset.reader[1]"),
        ({"reader": collections.OrderedDict(a=LOCK)}, "dataset.reader['a']"),
        ({"reader": collections.defaultdict(None, a=LOCK)}, "dataset.reader['a']"),
        ({"reader": collections.deque([1, LOCK])}, "dataset.reader[1]"),
        ({"reader": {LOCK: 1}}, "a key of dataset.reader"),
        ({"reader": {LOCK}}, "an item of dataset.reader"),
        ({"make": functools.partial(print, LOCK)}, "dataset.make.args[0]"),
        ({"make": functools.partial(print, file=LOCK)}, "dataset.make.keywords['file']"),
        ({"make": Rows(handle=LOCK).make}, "dataset.make.__self__.handle"),
        ({"seen": Reduced(1), "reader": Rows(handle=LOCK)}, "dataset.reader.handle"),
    ],
)  # fmt: skip
def test_the_path_is_what_was_really_pickled(inside: dict[str, Any], named: str) -> None:
    assert told(Rows(**inside)).startswith(f"{named} (lock) cannot be sent to a worker: cannot pickle")


def test_closures_globals_and_defaults() -> None:
    lock = LOCK
    reader = Rows(handle=[LOCK])

    def closing(rows: Any) -> Any:
        return lock, rows

    def deeper(rows: Any) -> Any:
        return reader, rows

    def nested(rows: Any) -> Any:
        return closing(rows)

    namespace: dict[str, Any] = {"guard": LOCK, "__name__": "__main__"}
    exec("def using(rows):\n    return guard", namespace)
    assert told(None, closing).startswith(
        "the variable 'lock' that collate_fn closes over (lock) cannot be sent"
    )
    assert told(Rows(fn=closing)).startswith("the variable 'lock' that dataset.fn closes over (lock) cannot")
    assert told(None, deeper).startswith(
        "reader.handle[0] (lock), where 'reader' is the variable that collate_fn closes over, cannot be sent"
    )
    assert told(None, nested).startswith("the variable 'lock' that closing closes over (lock) cannot be sent")
    assert told(None, namespace["using"]).startswith(
        "the variable 'guard' of its module that collate_fn uses (lock) cannot"
    )
    assert told(None, lambda rows, guard=lock: rows).startswith(
        "collate_fn.__defaults__[0] (lock) cannot be sent"
    )


def test_local_classes() -> None:
    class Local:
        guard = LOCK

    assert told(Local()).startswith("type(dataset).guard (lock) cannot be sent")


def test_an_error_of_the_users_own_is_kept() -> None:
    assert told(Rows(reader=Failing())).startswith(
        "dataset.reader (Failing) cannot be sent to a worker: I stay here."
    )


def test_what_is_nested_too_deeply() -> None:
    chain: Any = None
    for _ in range(100_000):
        chain = [chain]
    assert "cannot be sent to a worker" in told(Rows(chain=chain))
    while chain:  # freeing it in one go would be recursive too
        chain = chain[0]


def kinds() -> Iterator[tuple[Any, str]]:
    """Things that stay with their process, and what helps."""
    yield io.TextIOWrapper(io.BytesIO()), "Keep its path"
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        yield database, "Keep the path of the database"
    with zipfile.ZipFile(io.BytesIO(), "w") as archive:
        yield archive, "Keep its path"
    with mmap.mmap(-1, 4096) as mapping:
        yield mapping, "Keep its path"
    yield threading.Lock(), "multiprocessing.Lock()"
    yield threading.Event(), "multiprocessing.Lock()"
    yield threading.Thread(name="reader"), "Start it in worker_init_fn"
    yield concurrent.futures.ThreadPoolExecutor(1), "Start it in worker_init_fn"
    yield queue.Queue(), "multiprocessing.Queue"
    yield (number for number in range(3)), "keep its items in a list"
    yield weakref.ref(Rows), "Drop it in __getstate__"
    yield multiprocessing.get_context("fork").Lock(), "get_context('spawn')"
    yield select.poll(), "Open it inside __getitem__"


def test_each_kind_has_its_remedy() -> None:
    for thing, remedy in kinds():
        text = told(Rows(reader=Rows(handle=thing)))
        assert text.startswith(f"dataset.reader.handle ({type(thing).__name__}) cannot be sent to a worker: ")
        assert remedy in text


def test_a_tensor_with_a_history_is_detached() -> None:
    tensor = torch.ones(2, requires_grad=True).mul(2).share_memory_()
    assert ".detach()" in told(Rows(rows=tensor))
