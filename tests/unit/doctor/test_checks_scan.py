"""Checks that go by the scan: each finds its fault on a real object, by path and with numbers, and lets look-alikes pass."""

from __future__ import annotations

import concurrent.futures
import functools
import logging
import multiprocessing
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler

import stoker
from stoker._record.finding import Finding
from stoker._tools.doctor.checks.memory import stk605_big_permutation
from stoker._tools.doctor.checks.pickling import (
    stk101_unsendable,
    stk102_local_code,
    stk103_open_handle,
    stk104_held_thread,
    stk105_many_tensors,
    stk106_slow_travel,
    stk107_device_tensor,
    stk108_eager_data,
)
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.samples import Leaf
from stoker._tools.doctor.facts.scan import AttributeTotal, OddTensor, Preload, ScanFacts
from stoker._tools.doctor.probes.scan import probe
from stoker._tools.sandbox.subject import Subject
from tests.unit.doctor import given

GiB = 1 << 30


class Rows:
    """A dataset with something inside."""

    def __init__(self, **inside: Any) -> None:
        self.__dict__.update(inside)


class Careful(Rows):
    """Leaves what it opened behind."""

    def __getstate__(self) -> Any:
        return dict.fromkeys(self.__dict__)


def scan(dataset: Any, **arguments: Any) -> ScanFacts:
    return probe(Subject(dataset, arguments=arguments))


def only(found: Iterator[Finding]) -> Finding:
    (finding,) = found
    return finding


def test_101_names_every_part_that_cannot_be_sent() -> None:
    def rows() -> Iterator[int]:
        yield 1

    found = scan(Rows(reader=Rows(rows=rows()), locks=[threading.Lock() for _ in range(3)], module=functools))
    spawn = list(stk101_unsendable.examine(found, given.target(start_method="spawn")))
    assert [(each.where, each.severity) for each in spawn] == [
        ("dataset.module", "high"),
        ("dataset.reader.rows", "high"),
        ("dataset.locks[0]", "high"),
    ]
    assert (
        "dataset.reader.rows (generator) cannot be sent to a worker under spawn: cannot pickle"
        in spawn[1].evidence
    )
    assert "in __iter__ or __getitem__" in spawn[1].advice
    assert spawn[2].numbers["count"] == 3
    assert "2 more like it" in spawn[2].evidence
    ours = stk101_unsendable.examine(found, given.target(start_method="spawn", engine="stoker"))
    assert [each.where for each in ours] == ["dataset.reader.rows", "dataset.locks[0]"]
    forked = only(stk101_unsendable.examine(found, given.target()))
    assert (forked.severity, forked.where) == ("none", "dataset.module")
    assert "dataset.reader.rows (generator)" in forked.evidence


def test_101_lets_pass_what_travels() -> None:
    context = multiprocessing.get_context("spawn")
    fine = scan(
        Rows(
            lock=context.Lock(),
            table=np.zeros(3),
            rng=np.random.default_rng(),
            careful=Careful(lock=threading.Lock()),
        )
    )
    assert not list(stk101_unsendable.examine(fine, given.target(start_method="spawn")))
    faulty = scan(Rows(lock=threading.Lock()))
    assert not list(stk101_unsendable.examine(faulty, given.target(start_method="spawn", num_workers=0)))
    assert not list(stk101_unsendable.examine(faulty, given.target()))  # STK104 judges it


def top_level(image: Any, by: int = 255) -> Any:
    return image / by


def test_102_names_code_that_cannot_be_imported_with_its_line() -> None:
    class Scaled:
        def __call__(self, image: Any) -> Any:
            return image

    found = scan(Rows(transforms=[top_level, lambda image: image, Scaled()]), collate_fn=lambda batch: batch)
    spawn = only(stk102_local_code.examine(found, given.target(start_method="spawn")))
    assert spawn.severity == "high"
    assert spawn.numbers["count"] == 3
    assert spawn.where == "collate_fn"
    assert "dataset.transforms[1] (lambda, test_checks_scan.py:" in spawn.evidence
    assert "dataset.transforms[2] (local class Scaled)" in spawn.evidence
    assert spawn.edit is not None
    assert (spawn.edit.kind, spawn.edit.site) == ("import", "train.py:31")
    assert only(stk102_local_code.examine(found, given.target())).severity == "none"
    assert not list(stk102_local_code.examine(found, given.target(start_method="spawn", engine="stoker")))


def test_102_lets_pass_what_has_a_name() -> None:
    fine = scan(
        Rows(transforms=[top_level, functools.partial(top_level, by=2), len, Rows(), torch.nn.ReLU()]),
        collate_fn=torch.utils.data.default_collate,
    )
    assert not list(stk102_local_code.examine(fine, given.target(start_method="spawn")))


def test_103_names_handles_that_forked_workers_would_share(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with open(tmp_path / "a", "rb") as file, open(tmp_path / "log", "w") as log:
        rows = sqlite3.connect(tmp_path / "rows")
        found = scan(Careful(file=file, inner=Rows(rows=rows), log=log))
        rows.close()
    findings = {each.where: each for each in stk103_open_handle.examine(found, given.target())}
    assert {where: each.severity for where, each in findings.items()} == {
        "dataset.file": "high",
        "dataset.inner.rows": "high",
        "dataset.log": "low",
    }
    file_finding = findings["dataset.file"]
    assert str(tmp_path / "a") in file_finding.evidence
    assert "one offset" in file_finding.evidence
    assert "a fork does not ask it" in file_finding.evidence
    assert file_finding.edit is not None
    assert file_finding.edit.after == 'if self.file is None: self.file = open(self.path, "rb")'
    assert "serves one process" in findings["dataset.inner.rows"].evidence
    single = stk103_open_handle.examine(found, given.target(num_workers=1))
    assert {each.severity for each in single} == {"low"}


def test_103_names_a_pipe_and_lets_pass_the_one_of_a_queue() -> None:
    ends = multiprocessing.Pipe()
    queue: Any = multiprocessing.get_context("fork").Queue()
    found = scan(Rows(ends=ends, queue=queue))
    finding = only(stk103_open_handle.examine(found, given.target()))
    assert (finding.severity, finding.where) == ("moderate", "dataset.ends[0]")
    assert "take each other's messages" in finding.evidence
    assert "multiprocessing.Queue" in finding.advice
    for each in ends:
        each.close()
    queue.close()
    assert not scan(Rows(ends=ends)).handles


def test_103_lets_pass_what_shares_no_offset(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    with open(tmp_path / "a", "rb") as closed:
        pass
    fine = scan(
        Rows(closed=closed, mapped=np.memmap(tmp_path / "a", np.uint8, "r"), path=tmp_path / "a", late=None)
    )
    assert not list(stk103_open_handle.examine(fine, given.target()))
    with open(tmp_path / "a", "rb") as file:
        faulty = scan(Careful(file=file))
    assert not list(stk103_open_handle.examine(faulty, given.target(start_method="spawn")))
    assert not list(stk103_open_handle.examine(faulty, given.target(num_workers=0)))


def test_104_names_pools_whose_threads_run_and_locks_that_are_held() -> None:
    lock, idle = threading.Lock(), threading.Lock()
    with concurrent.futures.ThreadPoolExecutor(2) as pool, lock:
        pool.submit(int).result()
        found = scan(Rows(inner=Rows(pool=pool), lock=lock, idle=idle))
    findings = {each.where: each for each in stk104_held_thread.examine(found, given.target())}
    assert {where: each.severity for where, each in findings.items()} == {
        "dataset.inner.pool": "high",
        "dataset.lock": "high",
        "dataset.idle": "low",
    }
    assert findings["dataset.inner.pool"].numbers["threads"] == 1
    assert "1 thread or process" in findings["dataset.inner.pool"].evidence
    assert "locked at this moment" in findings["dataset.lock"].evidence


def test_104_lets_pass_what_a_fork_does_no_harm_to() -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as unused:
        logger = logging.getLogger("scanned")
        messages: Any = multiprocessing.Queue()
        messages.put(1)
        fine = scan(
            Rows(
                pool=unused,
                lock=threading.Lock(),
                shared=multiprocessing.Lock(),
                logger=logger,
                messages=messages,
            )
        )
        messages.get()
        messages.close()
        messages.join_thread()
    assert {each.what for each in fine.held} == {"pool", "lock"}
    assert not list(stk104_held_thread.examine(fine, given.target()))
    assert not list(stk104_held_thread.examine(fine, given.target(), given.process()))
    threaded = given.process(python_threads=("prefetch",))
    assert only(stk104_held_thread.examine(fine, given.target(), threaded)).severity == "low"


def test_105_counts_tensors_against_what_can_be_sent() -> None:
    found = scan(Rows(features={"train": [torch.zeros(2) for _ in range(300)]}))
    served = only(stk105_many_tensors.examine(found, given.target(start_method="forkserver")))
    assert served.where == "dataset.features['train']"
    assert (served.numbers["storages"], served.numbers["limit"]) == (300, 245)
    few = MachineFacts(descriptors=256, descriptors_open=20)
    spawned = only(stk105_many_tensors.examine(found, given.target(start_method="spawn"), few))
    assert spawned.numbers["limit"] == 256 - 20 - 32


def test_105_lets_pass_views_arrays_and_what_is_inherited() -> None:
    whole = torch.zeros(300, 2)
    fine = scan(Rows(features=list(whole), arrays=[np.zeros(2) for _ in range(300)]))
    assert (fine.tensors, fine.storages) == (300, 1)
    assert not list(stk105_many_tensors.examine(fine, given.target(start_method="forkserver")))
    many = scan(Rows(features=[torch.zeros(2) for _ in range(300)]))
    for passing in (
        given.target(),
        given.target(start_method="forkserver", engine="stoker"),
        given.target(start_method="forkserver", num_workers=0),
    ):
        assert not list(stk105_many_tensors.examine(many, passing))
    enough = MachineFacts(descriptors=1024, descriptors_open=20)
    assert not list(stk105_many_tensors.examine(many, given.target(start_method="spawn"), enough))


def test_106_multiplies_what_is_pickled_by_the_workers() -> None:
    found = replace(
        scan(Rows(rows=[(str(i), i) for i in range(20_000)], images=np.zeros(10_000_000, np.uint8))),
        pickle_s=2.0,
        array_bytes=2_000_000_000,
        pickle_bytes=100_000_000,
        room_bytes=100 * GiB,
    )
    finding = only(stk106_slow_travel.examine(found, given.target(start_method="spawn", num_workers=4)))
    assert finding.severity == "moderate"
    assert finding.numbers["total_bytes"] == 4 * 2_100_000_000
    assert finding.numbers["total_s"] == pytest.approx(4 * (2 + 5))
    assert finding.where == "dataset.images"
    assert "again at every epoch" in finding.evidence
    assert finding.edit is not None
    assert finding.edit.kind == "share"
    crowded = replace(found, room_bytes=10 * GiB)
    assert (
        only(stk106_slow_travel.examine(crowded, given.target(start_method="spawn", num_workers=4))).severity
        == "high"
    )


def test_106_lets_pass_what_is_small_shared_or_inherited() -> None:
    small = scan(Rows(rows=[(str(i), i) for i in range(5000)], tensor=torch.zeros(1000)))
    assert not list(stk106_slow_travel.examine(small, given.target(start_method="spawn", num_workers=8)))
    large = replace(small, pickle_s=100.0)
    assert not list(stk106_slow_travel.examine(large, given.target(num_workers=8)))
    assert not list(stk106_slow_travel.examine(large, given.target(start_method="spawn", engine="stoker")))
    shared = scan(Rows(rows=stoker.share([(str(i), i) for i in range(50_000)])))
    assert shared.pickle_bytes is not None
    assert shared.pickle_bytes < 10_000


def test_107_names_tensors_with_a_gradient_or_on_a_device() -> None:
    weight = torch.zeros(4, requires_grad=True)
    found = scan(Rows(encoder=torch.nn.Linear(2, 2), mean=weight * 2))
    assert {each.path for each in found.odd_tensors} == {
        "dataset.encoder.weight",
        "dataset.encoder.bias",
        "dataset.mean",
    }
    low = only(stk107_device_tensor.examine(found, given.target()))
    assert low.severity == "low"
    assert low.numbers["count"] == 3
    sent = given.samples(leaves=(Leaf("['x']", "tensor", requires_grad=True),))
    high = only(stk107_device_tensor.examine(found, given.target(), sent))
    assert high.severity == "high"
    assert "['x']" in high.evidence
    spawn = only(stk107_device_tensor.examine(found, given.target(start_method="spawn")))
    assert (spawn.severity, spawn.where) == ("high", "dataset.mean")
    assert not list(stk107_device_tensor.examine(found, given.target(engine="stoker")))
    device = ScanFacts(odd_tensors=(OddTensor("dataset.table", "cuda:0", False, True, 4096, 2),))
    forked = only(stk107_device_tensor.examine(device, given.target()))
    assert (forked.severity, forked.where, forked.numbers["bytes"]) == ("high", "dataset.table", 8192)
    assert (
        only(stk107_device_tensor.examine(device, given.target(start_method="spawn"))).severity == "moderate"
    )


def test_107_lets_pass_plain_tensors() -> None:
    fine = scan(
        Rows(
            table=torch.zeros(4),
            net=torch.nn.Linear(2, 2).requires_grad_(False),
            plan=torch.empty(2, device="meta"),
        )
    )
    assert not list(stk107_device_tensor.examine(fine, given.target()))


class Eager:
    """Reads all there is."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.images = [np.load(path) for path in paths]
        rows = []
        for path in paths:
            with open(path, "rb") as file:
                rows.append(file.read())
        self.rows = rows

    def __getitem__(self, index: int) -> Any:
        return self.images[index]


class Lazy:
    """Reads what it is asked for, and a list of names."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = [path for path in paths if path.suffix == ".npy"]
        with open(paths[0], "rb") as file:
            self.names = [line.strip() for line in file]

    def __getitem__(self, index: int) -> Any:
        return np.load(self.paths[index])


def test_108_names_what_was_read_before_the_first_sample(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.npy" for i in range(3)]
    for path in paths:
        np.save(path, np.zeros(500_000))
    found = scan(Eager(paths))
    assert [(each.path, each.call, each.how, each.only_indexed) for each in found.preloads] == [
        ("dataset.images", "np.load", "loop", True),
        ("dataset.rows", "open", "loop", True),
    ]
    held = {each.path: each.nbytes for each in found.parts}
    assert held["dataset.images"] == pytest.approx(12_000_000, rel=0.01)
    found = replace(found, room_bytes=100_000_000)
    finding = only(stk108_eager_data.examine(found, given.target()))
    assert finding.where in ("dataset.images", "dataset.rows")
    assert finding.numbers["held_bytes"] == pytest.approx(24_000_000, rel=0.01)
    assert "test_checks_scan.py:" in finding.evidence
    assert "only indexes it" in finding.evidence
    assert finding.severity == "low"
    spawned = only(stk108_eager_data.examine(found, given.target(start_method="spawn", num_workers=8)))
    assert spawned.severity == "high"
    assert spawned.numbers["copies"] == 8


class Made(torch.utils.data.Dataset[Any]):
    """Is all there before the first sample."""

    def __init__(self, path: Path) -> None:
        self.noise = np.random.rand(10, 10).astype(np.float32)
        self.table = np.load(path)
        self.mapped = np.load(path, mmap_mode="r")

    def __getitem__(self, index: int) -> Any:
        return self.noise[index]


def test_108_reads_the_source_of_a_dataset_inside_others(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(10))
    found = scan(torch.utils.data.Subset(Made(tmp_path / "a.npy"), [1]))
    assert [(each.path, each.call, each.how) for each in found.preloads] == [
        ("dataset.dataset.noise", "np.random.rand", "made"),
        ("dataset.dataset.table", "np.load", "whole"),
    ]
    noise = AttributeTotal("dataset.dataset.noise", "ndarray float32 (100, 1024, 1024)", 1, 400 << 20, 1, 128)
    finding = only(
        stk108_eager_data.examine(replace(found, parts=(noise,), room_bytes=100 * GiB), given.target())
    )
    assert (finding.severity, finding.where) == ("low", "dataset.dataset.noise")
    assert "made at once by np.random.rand in __init__ (test_checks_scan.py:" in finding.evidence
    assert "Load lazily" in finding.advice


class Kept:
    """All samples of a dataset that reads files, and of one that it is given."""

    def __init__(self, dataset: Any, paths: list[Path]) -> None:
        inner = Lazy(paths)
        self.rows = [inner[at % len(paths)] for at in range(4)]
        self.given = [dataset[at] for at in range(2)]
        self.first = dataset[0]

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


def test_108_names_a_dataset_whose_samples_are_all_taken(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.npy" for i in range(2)]
    for path in paths:
        np.save(path, np.zeros(500_000))
    found = scan(Kept(range(9), paths))
    assert [(each.path, each.call, each.how, each.only_indexed) for each in found.preloads] == [
        ("dataset.rows", "inner", "dataset", True),
        ("dataset.given", "dataset", "dataset", True),
    ]
    finding = only(stk108_eager_data.examine(replace(found, room_bytes=100_000_000), given.target()))
    assert finding.where == "dataset.rows"
    assert "all samples of inner taken in __init__ (test_checks_scan.py:" in finding.evidence
    assert finding.advice.startswith("Keep inner itself")


def test_108_goes_by_bytes_where_the_source_says_nothing() -> None:
    array = AttributeTotal("dataset.volumes", "ndarray float32 (1000,)", 1, 3 * GiB, 1, 128)
    finding = only(stk108_eager_data.examine(ScanFacts(parts=(array,), room_bytes=100 * GiB), given.target()))
    assert (finding.severity, finding.where) == ("low", "dataset.volumes")
    crowded = only(stk108_eager_data.examine(ScanFacts(parts=(array,), room_bytes=4 * GiB), given.target()))
    assert crowded.severity == "moderate"


def test_108_lets_pass_names_small_data_and_what_is_mapped(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.npy" for i in range(3)]
    for path in paths:
        np.save(path, np.zeros(1000))
    lazy = scan(Lazy(paths))
    assert not lazy.preloads
    names = AttributeTotal(
        "dataset.paths", "list of str", 30_000_000, 3 * GiB, 30_000_000, 3 * GiB - 240_000_000
    )
    mapped = AttributeTotal("dataset.table", "ndarray float32 (1,)", 1, 90 * GiB, 1, 128, "file")
    small = AttributeTotal("dataset.digits", "tensor uint8 (60000, 28, 28)", 1, 47_040_000, 1, 128)
    preload = Preload("dataset.table", "np.load", "whole", 3, "data.py", True)
    fine = replace(lazy, parts=(names, mapped, small), preloads=(preload,), room_bytes=100 * GiB)
    assert not list(stk108_eager_data.examine(fine, given.target()))


def test_605_says_what_a_listed_order_takes() -> None:
    found = scan(range(20_000_000), sampler=RandomSampler(range(20_000_000)))
    assert found.listed_indices == 20_000_000
    found = replace(found, room_bytes=100 * GiB)
    finding = only(stk605_big_permutation.examine(found, given.target(shuffle=True, sampler="RandomSampler")))
    assert finding.numbers["peak_bytes"] == 960_000_000
    assert finding.severity == "low"
    assert finding.edit is not None
    assert "ElasticDistributedSampler" in finding.edit.after
    crowded = replace(found, room_bytes=GiB)
    assert only(stk605_big_permutation.examine(crowded, given.target())).severity == "high"
    data: Any = range(8_000_000)
    ranks: DistributedSampler[int] = DistributedSampler(data, 4, 0)
    assert scan([], sampler=ranks).listed_indices == 8_000_000


def test_605_lets_pass_orders_that_are_short_or_computed() -> None:
    data = range(20_000_000)
    for sampler in (
        SequentialSampler(data),
        RandomSampler(data, replacement=True),
        stoker.ElasticDistributedSampler(data),
        RandomSampler(range(1000)),
    ):
        found = scan(data, sampler=sampler)
        assert not list(stk605_big_permutation.examine(found, given.target(samples=20_000_000)))
    batches = BatchSampler(RandomSampler(data), 4, False)
    assert scan(data, batch_sampler=batches).listed_indices == 20_000_000
