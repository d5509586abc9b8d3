"""The scan of a dataset: what it finds, and under which path."""

from __future__ import annotations

import collections
import concurrent.futures
import datetime
import functools
import io
import itertools
import logging
import mmap
import multiprocessing
import pickle
import random
import re
import socket
import sqlite3
import sys
import tarfile
import threading
import types
import weakref
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image

from stoker import share
from stoker._pickling.spec_pickle import SpecPickle
from stoker._tools.doctor.facts.scan import ScanFacts
from stoker._tools.doctor.probes.scan import probe
from stoker._tools.sandbox.subject import Subject

LOCK = threading.Lock()


class Rows:
    """A dataset with something inside."""

    def __init__(self, **inside: Any) -> None:
        self.__dict__.update(inside)

    def make(self) -> None: ...

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def scan(dataset: Any = None, **arguments: Any) -> ScanFacts:
    return probe(Subject(dataset, arguments=arguments))


def refused(found: ScanFacts) -> dict[str, bool]:
    """Paths of what cannot be sent, and whether by nobody."""
    return {each.path: each.anyone for each in found.unsendable}


def test_everything_that_matters_is_found_in_one_pass(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    with open(tmp_path / "a", "rb") as file, open(tmp_path / "a") as text, threading_pool() as pool:
        dataset = Rows(
            reader=Rows(handle=file, notes=text),
            lock=threading.Lock(),
            pool=pool,
            generator=(i for i in "ab"),
            module=types,
            transforms=[1, lambda x: x, functools.partial(print, file=file)],
            counts=collections.defaultdict(lambda: 0),
            rng=np.random.default_rng(0),
            rngs={"python": random.Random(), "torch": torch.Generator()},
            tensors=[torch.zeros(4) for _ in range(300)],
            names=[f"{i:06}.jpg" for i in range(30_000)],
            images=np.zeros((100, 1000), np.uint8),
        )
        found = scan(dataset)
    assert refused(found) == {
        "dataset.reader.handle": True,
        "dataset.reader.notes": False,
        "dataset.lock": True,
        "dataset.pool": True,
        "dataset.generator": True,
        "dataset.module": False,
    }
    assert {(each.path, each.kind) for each in found.local_code} == {
        ("dataset.transforms[1]", "lambda"),
        ("dataset.counts.default_factory", "lambda"),
    }
    assert all("test_scan.py:" in each.site for each in found.local_code)
    assert {(each.path, each.what, each.name) for each in found.handles} == {
        ("dataset.reader.handle", "file", str(tmp_path / "a")),
        ("dataset.reader.notes", "file", str(tmp_path / "a")),
    }
    assert {(each.path, each.what, each.live, each.threads) for each in found.held} == {
        ("dataset.lock", "lock", False, 0),
        ("dataset.pool", "pool", True, 1),
    }
    assert {(each.path, each.kind) for each in found.generators} == {
        ("dataset.rng", "Generator"),
        ("dataset.rngs['python']", "Random"),
        ("dataset.rngs['torch']", "torch.Generator"),
    }
    assert (found.tensors, found.storages, found.tensor_bytes, found.most_tensors) == (
        300,
        300,
        4800,
        "dataset.tensors",
    )
    assert found.array_bytes == 100_000
    assert found.complete
    names = next(part for part in found.parts if part.path == "dataset.names")
    assert (names.kind, names.items, names.backing) == ("list of str", 30_000, "private")
    assert names.objects == pytest.approx(30_000, rel=0.01)
    assert names.copied_bytes == pytest.approx(30_000 * sys.getsizeof("000000.jpg"), rel=0.01)


class threading_pool:
    """A pool of which one thread runs."""

    def __enter__(self) -> concurrent.futures.ThreadPoolExecutor:
        self._pool = concurrent.futures.ThreadPoolExecutor(2)
        self._pool.submit(int).result()
        return self._pool

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


def test_handles_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class File:
        filename = "data.h5"

        def __reduce__(self) -> Any:
            raise TypeError("h5py objects cannot be pickled")

    File.__module__ = "h5py"
    h5py = types.ModuleType("h5py")
    h5py.HLObject = File  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "h5py", h5py)
    (tmp_path / "a").write_bytes(b"x" * 5000)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x", "y")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "a")
    opened: dict[str, Any] = {
        "zip": zipfile.ZipFile(tmp_path / "a.zip"),
        "tar": tarfile.open(tmp_path / "a.tar"),  # noqa: SIM115
        "rows": sqlite3.connect(tmp_path / "a.db"),
        "image": Image.open(tmp_path / "a.png"),
        "socket": socket.socket(),
        "file": open(tmp_path / "a", "rb"),  # noqa: SIM115
        "log": open(tmp_path / "log", "w"),  # noqa: SIM115
    }
    with open(tmp_path / "a", "rb") as file:
        opened["mapping"] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    closed: Any = open(tmp_path / "a", "rb")  # noqa: SIM115
    closed.close()
    loaded = Image.open(tmp_path / "a.png")
    loaded.load()
    try:
        position = opened["file"].tell()
        found = scan(
            Rows(
                **opened, h5=File(), closed=closed, memory=io.BytesIO(b"x"), loaded=loaded,
                memmap=np.memmap(tmp_path / "a", np.uint8, "r"), stream=sys.stdout,
            )
        )  # fmt: skip
        assert opened["image"].fp is not None
        assert opened["file"].tell() == position
    finally:
        for each in opened.values():
            each.close()
    what = {each.path.removeprefix("dataset."): (each.what, each.sendable) for each in found.handles}
    assert what == {
        "zip": ("archive", False),
        "tar": ("archive", False),
        "rows": ("database", False),
        "image": ("image", True),
        "socket": ("socket", True),
        "file": ("file", False),
        "log": ("output", False),
        "mapping": ("mapping", False),
        "h5": ("file", False),
    }
    assert next(each.kind for each in found.handles if each.name == "data.h5") == "h5py.File"
    part = next(each for each in found.parts if each.path == "dataset.memmap")
    assert part.backing == "file"


def test_pickling_refuses_exactly_what_the_scan_says_nobody_can_send(tmp_path: Path) -> None:
    """Every kind by itself: what ``anyone`` says against stoker's own packed spec, what is listed at all against plain pickle."""

    def local() -> None: ...

    with open(tmp_path / "a", "w+") as text, open(tmp_path / "a", "rb") as binary:
        things = [
            text, binary, threading.Lock(), threading.Event(), (i for i in ""), weakref.ref(local), weakref.WeakSet(),
            types, local, lambda: binary, functools.partial(local), memoryview(b"x"), iter([1]), {1: 2}.keys(),
            multiprocessing.get_context("spawn").Lock(), np.zeros(3), torch.zeros(3), torch.nn.Linear(2, 2),
            torch.zeros(1, requires_grad=True) + 1,
            (torch.zeros(1, requires_grad=True) + 1).share_memory_(),
            random.Random(), np.random.default_rng(), torch.Generator(), io.BytesIO(b"x"),
            property(Rows.make), local.__code__, types.MappingProxyType({}), types.SimpleNamespace(f=local), Reduced(binary),
            Failing(), Dropping(binary), collections.Counter("abc"), collections.OrderedDict(a=binary), Path("x"), range(3),
            collections.defaultdict(list), collections.deque([binary]), Slotted(binary), Record(binary), Rows.make,
            functools.lru_cache(local), functools.lru_cache(Rows.make), np.add,
            threading.local(), type("Local", (), {"lock": LOCK})(), Rows(a=1).make, [].append,
        ]  # fmt: skip
        for thing in things:
            found = scan(Rows(x=thing))
            says_plain = bool(found.unsendable or found.local_code)
            says_nobody = any(each.anyone for each in found.unsendable)
            assert says_plain == (not pickles(thing)), (thing, found.unsendable, found.local_code)
            assert says_nobody == (not ships(thing)), (thing, found.unsendable)


def pickles(thing: Any) -> bool:
    if isinstance(thing, torch.Tensor):
        return not thing.requires_grad or thing.is_leaf
    if type(thing).__name__ == "Lock" and type(thing).__module__.startswith("multiprocessing"):
        return True
    try:
        pickle.dumps(thing)
    except Exception:
        return False
    return True


def ships(thing: Any) -> bool:
    try:
        SpecPickle(Rows(x=thing)).close()
    except Exception:
        return False
    return True


class Reduced:
    """Is rebuilt from its arguments; what else it holds stays here."""

    def __init__(self, handle: Any) -> None:
        self.unsent = threading.Lock()
        self.handle = handle

    def __reduce__(self) -> Any:
        return Reduced, (self.handle,)


class Dropping:
    """Leaves its handle behind."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def __getstate__(self) -> Any:
        return {**self.__dict__, "handle": None}


class Failing:
    def __getstate__(self) -> Any:
        raise RuntimeError("I stay here")


class Slotted:
    __slots__ = ("handle",)

    def __init__(self, handle: Any) -> None:
        self.handle = handle


@dataclass(frozen=True, slots=True)
class Record:
    handle: Any


def test_what_getstate_leaves_out_is_inherited_and_not_sent(tmp_path: Path) -> None:
    with open(tmp_path / "a", "wb+") as file:
        found = scan(Rows(inner=Dropping(file), other=Reduced(3)))
    assert not found.unsendable
    assert [(each.path, each.dropped) for each in found.handles] == [("dataset.inner.handle", True)]
    assert [(each.path, each.dropped) for each in found.held] == [("dataset.other.unsent", True)]


def test_paths_through_slots_closures_states_keys_and_classes() -> None:
    lock = threading.Lock()

    default = Rows(lock=threading.Lock())

    def transform(x: Any, default: Any = default) -> Any:
        return lock, x, LOCK

    class Converted(Reduced):
        def __reduce__(self) -> Any:
            return Reduced, ({"inner": self.handle[0]},)

    class Local:
        shared = threading.Event()

    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    module.extra = Rows(lock=threading.Lock())  # type: ignore[assignment]
    found = scan(
        Rows(
            transform=transform, slots=Slotted(threading.Lock()), record=Record(threading.Lock()),
            keys={Slotted(threading.Lock()): 1, (1, "a"): threading.Lock(), Slotted(1): threading.Lock()},
            items={Record(1), Record(2)}, made=Converted([threading.Lock()]), net=module, local=Local(),
            method=Rows(lock=threading.Lock()).make,
        ),
        collate_fn=functools.partial(max, key=threading.Lock()),
        worker_init_fn=Slotted(threading.Lock()),
    )  # fmt: skip
    assert set(refused(found)) == {
        "the variable 'lock' that dataset.transform closes over",
        "the variable 'LOCK' of its module that dataset.transform uses",
        "dataset.transform.__defaults__[0].lock",
        "dataset.slots.handle",
        "dataset.record.handle",
        "(a key of dataset.keys).handle",
        "dataset.keys[(1, 'a')]",
        "dataset.made.handle[0]",
        "dataset.net.extra.lock",
        "dataset.method.__self__.lock",
        "type(dataset.local).shared",
        "collate_fn.keywords['key']",
        "worker_init_fn.handle",
    }
    assert {(each.path, each.kind) for each in found.local_code} == {
        ("dataset.transform", "local function"),
        ("dataset.local", "local class"),
    }


def test_many_alike_are_told_once_with_their_number() -> None:
    found = scan(
        Rows(locks=[threading.Lock() for _ in range(100)], more={str(i): Rows(at=LOCK) for i in range(3)})
    )
    assert [(each.path, each.count) for each in found.unsendable] == [
        ("dataset.locks[0]", 100),
        ("dataset.more['0'].at", 1),
    ]


def test_one_odd_item_among_many_is_found() -> None:
    rows: list[Any] = [(f"{i}.jpg", i) for i in range(150_000)]
    rows[77_777] = ("x", threading.Lock())
    files: list[Any] = [f"{i}.jpg" for i in range(150_000)]
    files[123_456] = (i for i in "")
    table: dict[Any, Any] = dict.fromkeys(range(100000), 1.5)
    table[99_000] = torch.Generator()
    found = scan(Rows(rows=rows, files=files, table=table))
    assert set(refused(found)) == {"dataset.rows[77777][1]", "dataset.files[123456]"}
    assert [each.path for each in found.generators] == ["dataset.table[99000]"]


def test_figures_of_large_containers_are_about_right() -> None:
    rows = [(f"{i:07}.jpg", i + 1000, (1.5 * i, 2.5 * i)) for i in range(60_000)]
    labels = ["cat" if i % 2 else "dog" for i in range(60_000)]
    found = scan(Rows(rows=rows, labels=labels, tensors=[torch.zeros(8) for _ in range(5000)]))
    part = {each.path: each for each in found.parts}
    each = sum(map(sys.getsizeof, (rows[9], *rows[9][:2], rows[9][2], *rows[9][2])))
    assert part["dataset.rows"].copied_bytes == pytest.approx(60_000 * each, rel=0.15)
    assert part["dataset.rows"].objects == pytest.approx(360_000, rel=0.05)
    assert part["dataset.rows"].about
    assert part["dataset.labels"].objects < 10
    assert found.about
    assert found.tensors == 5000
    assert found.storages == 5000
    assert found.tensor_bytes == 5000 * 32
    real = len(pickle.dumps((rows, labels), 5))
    assert found.pickle_bytes == pytest.approx(real, rel=0.15)
    assert found.pickle_s is not None


def test_memory_is_counted_once_and_by_what_backs_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100_000))
    whole = np.zeros(200_000, np.uint8)
    tensor = torch.zeros(50_000)
    mapped = np.memmap(tmp_path / "a", np.uint8, "r")
    found = scan(
        Rows(
            whole=whole, view=whole[:10], tensor=tensor, part=tensor[:5], mapped=np.asarray(mapped), blob=bytes(300_000),
            shared=share([f"{i}" for i in range(10_000)]), array=share(np.zeros(100_000)),
        )
    )  # fmt: skip
    part = {each.path: (each.nbytes, each.backing) for each in found.parts}
    assert part["dataset.whole"] == (200_000, "private")
    assert part["dataset.tensor"] == (200_000, "private")
    assert part["dataset.mapped"][1] == "file"
    assert part["dataset.blob"][0] == pytest.approx(300_000, abs=100)
    assert found.nbytes == pytest.approx(700_000, rel=0.01)
    assert (found.tensors, found.storages) == (2, 1)
    assert not found.unsendable


def test_what_is_mostly_bytes_is_measured_and_not_copied(tmp_path: Path) -> None:
    table = pa.table({"a": np.arange(100_000)})
    with pa.OSFile(str(tmp_path / "a"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with pa.memory_map(str(tmp_path / "a")) as file:
        mapped = pa.ipc.open_file(file).read_all()
    torch.save({"x": torch.zeros(50_000)}, tmp_path / "t")
    loaded = torch.load(tmp_path / "t", mmap=True)
    found = scan(
        Rows(
            pictures=[Image.new("RGB", (100, 100)) for _ in range(10)], table=table, mapped=mapped, blob=bytearray(70_000),
            memory=io.BytesIO(bytes(80_000)), frame=pd.DataFrame({"a": np.arange(10_000.0)}), weights=loaded["x"],
        )
    )  # fmt: skip
    part = {each.path: (each.nbytes, each.backing) for each in found.parts}
    assert sum(
        each.nbytes for each in found.parts if each.path.startswith("dataset.pictures")
    ) == pytest.approx(300_000, rel=0.1)
    assert part["dataset.table"] == (800_000, "private")
    assert part["dataset.mapped"] == (800_000, "file")
    assert part["dataset.weights"][1] == "file"
    assert part["dataset.blob"] == (70_000, "private")
    assert part["dataset.memory"] == (80_000, "private")
    assert part["dataset.frame"][0] == pytest.approx(80_000, rel=0.05)
    assert not found.unsendable
    assert not found.handles
    assert found.pickle_bytes is not None
    assert found.pickle_bytes < 80_000  # of which the bytearray takes 70 000


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_what_libraries_bring_is_looked_at_without_stumbling() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    sparse = torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.tensor([1.0]), (2, 2))
    found = scan(
        Rows(
            nested=nested, sparse=sparse, objects=np.array([1, "a", LOCK], object), record=np.zeros(3, [("a", "i4")]),
            masked=np.ma.zeros(3), scalar=np.float32(1), frame=pd.DataFrame({"a": [1], "b": ["x"]}), path=Path("x"),
            logger=logging.getLogger("scanned"), pattern=re.compile("a"), when=datetime.date(2020, 1, 1), at=itertools.count(),
            split=torch.utils.data.Subset(torch.utils.data.TensorDataset(torch.zeros(3)), [0]), clahe=cv2.createCLAHE(),
            script=torch.jit.script(torch.nn.ReLU()), net=torch.nn.Sequential(torch.nn.Linear(2, 2)),
        )
    )  # fmt: skip
    assert set(refused(found)) == {"dataset.objects[2]", "dataset.clahe", "dataset.script"}
    assert [each.path for each in found.odd_tensors] == [
        "dataset.net._modules['0'].weight",
        "dataset.net._modules['0'].bias",
    ]
    assert found.complete


OPENED: Any = None


class WithGlobals:
    """Reads from what its module and its class hold."""

    shared: Any = None

    def __getitem__(self, index: int) -> Any:
        return OPENED.read(index)


def test_handles_of_the_class_and_of_its_module_are_inherited_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with open(tmp_path / "a", "rb") as file, open(tmp_path / "a", "rb") as other:
        monkeypatch.setattr(sys.modules[__name__], "OPENED", file)
        monkeypatch.setattr(WithGlobals, "shared", other)
        found = scan(WithGlobals())
    assert {(each.path, each.dropped) for each in found.handles} == {
        ("dataset.shared", True),
        ("the variable 'OPENED' of its module that dataset.__getitem__ uses", True),
    }
    assert not found.unsendable
