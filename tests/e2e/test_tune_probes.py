"""The tuner's probes in a sandbox: what they tell of targets that work, and of those that do not."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

import stoker
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand
from stoker._tools.sandbox.client import Answer, SandboxClient
from stoker._tools.sandbox.process_tree import is_tracker
from stoker._tools.sandbox.target import subject_of
from stoker._tools.tune.bench import bench
from stoker._tools.tune.model.block import Block

TORCH, INLINE, PAIR, TORCH_PAIR = (
    Setting(0, engine="torch"), Setting(0), Setting(2), Setting(2, engine="torch"),
)  # fmt: skip


class Rows(Dataset[Any]):
    """Some of its samples may raise."""

    def __init__(self, length: int = 40, bad: tuple[int, ...] = ()) -> None:
        self.length, self.bad = length, bad

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise ValueError(f"row {index} is gone")
        return torch.full((16,), index)


class Stream(IterableDataset[Any]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        return (torch.full((4,), each) for each in range(self.length))


class Endless(Rows):
    def __getitem__(self, index: int) -> Any:
        time.sleep(60)


class TuningSandbox:
    """A sandbox, asked as the tuner asks."""

    def __init__(self, sandbox: SandboxClient) -> None:
        self.sandbox = sandbox
        self.avoid: tuple[int, ...] = ()

    def ask(self, probe: str, **trial: Any) -> Answer:
        return self.sandbox.probe(
            f"stoker._tools.tune.probes.{probe}", limit_s=60, in_fork=False, trial=trial, avoid=self.avoid
        )

    def block(self, setting: Setting, **trial: Any) -> Block:
        found = self.ask("block", setting=setting.as_dict(), **{"seconds": 0.02, "least": 4, **trial}).fact
        assert isinstance(found, Block)
        return found

    def workers(self) -> list[psutil.Process]:
        found = psutil.Process(self.sandbox.pid).children(recursive=True)
        return [each for each in found if not is_tracker(each)]


@contextmanager
def tuning_sandbox(target: Any, step: Any = None) -> Iterator[TuningSandbox]:
    subject = subject_of(target)
    if step is not None:
        subject = replace(subject, kept={"step": step})
    sandbox = SandboxClient(subject, memory_limit_bytes=None)
    try:
        yield TuningSandbox(sandbox)
    finally:
        sandbox.close()


def step(batch: Any) -> None:
    assert batch.shape[1] == 16


def stops(process: psutil.Process) -> bool:
    """A stop signal takes effect when the kernel gets to it: at once, or when a busy machine lets it."""
    deadline = time.monotonic() + 30
    while process.status() != psutil.STATUS_STOPPED:
        if time.monotonic() > deadline:
            return False
        os.sched_yield()
    return True


def test_a_target_is_looked_at_and_run_with_settings_whose_workers_stay():
    with tuning_sandbox(DataLoader(Rows(), batch_size=8, shuffle=True, drop_last=True), step) as here:
        host = here.ask("host", ranks=2).fact
        assert (host.ranks, host.start_method) == (2, "fork")
        assert 0 < host.shipment_bytes < 1000
        for seconds in (
            0.3,
            1,
            3,
            10,
        ):  # the second look at the samples has a share of it, and a busy machine may take that
            work = here.ask("work", seconds=seconds).fact
            if work.cold_ns is not None:
                break
        assert (work.rows, work.batch_bytes, work.bad) == (8, 8 * 16 * 8, ())
        assert len(work.batch_ns) == len(work.cpu_ns) > 0
        assert all(0 <= cpu <= whole for cpu, whole in zip(work.cpu_ns, work.batch_ns, strict=True))
        assert work.cold_ns is not None
        assert work.warm_ns is not None
        assert not here.workers()
        demand = here.ask("demand", seconds=0.05, burst=2).fact
        assert isinstance(demand, Demand)
        assert (demand.source, demand.burst) == ("step", 2)
        assert demand.step_ns > 0
        for setting in (TORCH, INLINE, PAIR, TORCH_PAIR, PAIR):
            first = setting != PAIR or len(here.workers()) < 4
            found = here.block(setting, step=True, burst=2)
            assert found.failure == ""
            assert found.batches >= 4
            assert 0 < found.wait_ns <= found.wall_ns
            assert (found.first_ns is not None) == first
            assert 0 < found.parent_cpu_ns <= found.job_cpu_ns
        assert found.batch_ns
        assert found.memory_bytes
        crew = here.workers()
        assert len(crew) == 4
        assert all(stops(each) for each in crew)
        here.ask("block", setting=TORCH_PAIR.as_dict(), close=True)
        assert len(here.workers()) == 2
        here.ask("block", close=True)
        assert not here.workers()


def test_samples_that_raise_are_told_and_can_be_left_out():
    with tuning_sandbox(DataLoader(Rows(bad=(3, 9, 20, 30, 39)), batch_size=8)) as here:
        for setting in (TORCH, PAIR, TORCH_PAIR):
            found = here.block(setting)
            assert found.failure.startswith("ValueError: row ")
            assert found.batches == 0
        assert not here.workers()
        work = here.ask("work", seconds=0.3).fact
        assert set(work.bad) <= {3, 9, 20, 30, 39}
        assert work.bad
        assert work.bad_text.startswith("ValueError: row")
        here.avoid = work.bad
        for setting in (TORCH, PAIR):
            found = here.block(setting, least=12)
            assert found.failure == ""
            assert found.batches >= 12


def test_targets_without_a_batch_are_no_end_of_the_sandbox():
    with tuning_sandbox(Rows(10, bad=tuple(range(10)))) as here:
        raised = here.ask("work", seconds=0.1).failure
        assert raised == "no batch could be made: sample 0: ValueError: row 0 is gone"
        assert here.ask("demand", step="json:dumps").failure.startswith(
            "there is no batch for the step function"
        )
    for empty, said in ((Rows(0), "its sampler gives no batch"), (Stream(0), "it gives no batch")):
        with tuning_sandbox(empty) as here:
            assert here.block(TORCH).failure == here.block(PAIR).failure == said
            assert not here.workers()
    with tuning_sandbox(Endless()) as here:
        assert here.ask("work", seconds=0.1, limit_s=0.1).failure == "no sample was made within 0.1 s"
        assert here.block(TORCH_PAIR, limit_s=0.1).failure == "no batch came within 0.1 s"
        assert not here.workers()


class OneBuffer:
    """Fills the same tensor for every batch."""

    def __init__(self) -> None:
        self.buffer: Any = None

    def __call__(self, samples: Any) -> Any:
        self.buffer = torch.stack([torch.as_tensor(each) for each in samples], out=self.buffer)
        return self.buffer


def fresh(samples: Any) -> Any:
    return torch.stack([torch.as_tensor(each) for each in samples])


@pytest.mark.parametrize(("collate_fn", "keeps"), [(OneBuffer(), True), (fresh, False), (None, False)])
def test_a_collate_fn_that_keeps_its_memory_is_found(collate_fn: Any, keeps: bool):
    with tuning_sandbox(DataLoader(Rows(), batch_size=8, collate_fn=collate_fn)) as here:
        assert here.ask("work", seconds=0.1).fact.keeps_batches is keeps


class Scratch(Rows):
    """Makes each sample in memory that all threads share, in one of several ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.buffer = way, torch.empty(16)

    def __getitem__(self, index: int) -> Any:
        return getattr(self, self.way)(index)

    def copied(self, index: int) -> Any:
        self.buffer.fill_(index)
        time.sleep(0.002)
        return self.buffer.clone()

    def returned(self, index: int) -> Any:
        return self.buffer.fill_(index)

    def not_again(self, index: int) -> Any:
        if self.length == 0:
            raise RuntimeError("it is in use")
        self.length = 0
        time.sleep(0.002)
        self.length = 40
        return torch.full((16,), index)

    def random(self, index: int) -> Any:
        return torch.rand(16)

    def own_numbers(self, index: int) -> Any:
        return torch.rand(16, generator=stoker.generator("torch"))

    def flat(self, index: int) -> Any:
        return torch.full((16,), index)

    def new(self, index: int) -> Any:
        time.sleep(0.0005)
        return {"x": torch.full((16,), index), "name": str(index)}


@pytest.mark.parametrize(
    ("way", "safe", "said"),
    [
        ("copied", False, "batches of 8 threads differ from those of one, with rows "),
        ("returned", False, "memory that it fills again"),
        ("not_again", False, "with 8 threads at once: RuntimeError: it is in use"),
        ("random", None, "samples are random"),
        ("own_numbers", True, "equal"),
        ("new", True, "equal"),
    ],
)
def test_batches_of_many_threads_are_compared_with_those_of_one(way: str, safe: Any, said: str):
    with tuning_sandbox(DataLoader(Scratch(way), batch_size=4)) as here:
        found = here.ask("thread_safety", threads=8, batches=24, seconds=0.1, limit_s=60.0).fact
        assert found.safe is safe, found
        assert said in found.text


def test_batches_are_compared_as_the_loader_makes_them():
    for options in ({"batch_size": None}, {"batch_size": 4, "collate_fn": OneBuffer()}):
        with tuning_sandbox(
            DataLoader(Scratch("new" if options["batch_size"] is None else "flat"), **options)
        ) as here:
            assert here.ask("thread_safety", rows=2, seconds=0.1, limit_s=60.0).fact.safe
    with tuning_sandbox(DataLoader(Rows(bad=(1,)), batch_size=4)) as here:
        found = here.ask("thread_safety", limit_s=60.0).fact
        assert found.safe is None
        assert "ValueError: row 1 is gone" in found.text


def test_streams_go_round_and_settings_that_cannot_be_are_refused():
    with tuning_sandbox(DataLoader(Stream(20), batch_size=8)) as here:
        work = here.ask("work", seconds=0.1).fact
        assert work.rows == 8
        assert work.threads_gain is None
        for setting in (TORCH, PAIR):
            assert here.block(setting, least=10).batches >= 10
        assert "ValueError" in here.block(replace(PAIR, executor="nonsense")).failure
        failed = here.block(INLINE, step="json:loads")
        assert failed.failure.startswith("TypeError")
        told = here.ask("demand", step="json:loads", seconds=0.1)
        assert told.failure.startswith("the step function raised TypeError")


def test_a_bench_runs_both_engines_side_by_side_on_equal_batches():
    told: list[str] = []
    found = bench(
        DataLoader(Rows(), batch_size=8),
        setting=Setting(2, 2),
        budget_s=1.5,
        progress=lambda what, share: told.append(what),
    )
    assert found.lanes[0].names == ("torch's default", "yours")
    assert [each.setting.engine for each in found.lanes] == ["torch", "torch", "stoker"]
    assert (found.alike, found.failure, found.tuned_by) == (True, "", "given")
    assert found.rounds >= 2
    assert all(each.point.blocks >= 2 and each.per_second > 0 for each in found.lanes)
    assert told[0] == "loading"
    random = bench(DataLoader(Noisy(), batch_size=8), setting=Setting(0), budget_s=0.3)
    assert random.alike is None
    assert "random" in random.alike_text


class Noisy(Rows):
    def __getitem__(self, index: int) -> Any:
        return torch.rand(4)
