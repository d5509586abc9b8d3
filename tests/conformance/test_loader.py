"""The public loader: whatever executor, start method, backing and options, the batches are those of ``num_workers=0``."""

from __future__ import annotations

import itertools
import os
import signal
from typing import Any

import pytest
import torch

import stoker
from stoker import arguments
from stoker._runtime.executors import registry
from stoker._runtime.transport.arena import Arena
from tests.compat.compare import assert_same, seed_everything
from tests.conformance.datasets import Mixture
from tests.conformance.remote import RemoteExecutor

ROWS = 190
BATCH = 40
EPOCHS = 2

# Spawned workers import torch anew, seconds each: one loader shows what the start method adds.
PLANS: list[dict[str, Any]] = [
    *(
        {"method": method, "backing": backing, "split": split, "persistent": persistent, "in_order": in_order}
        for method, backing, split, persistent, in_order in itertools.product(
            ["fork", "forkserver", "thread"], ["memfd", "file"], [False, True], [False, True], [False, True]
        )
        if not (method == "thread" and backing == "file")
    ),
    {"method": "spawn", "backing": "memfd", "split": True, "persistent": True, "in_order": True},
]


def _name(plan: dict[str, Any]) -> str:
    words = [plan["method"], plan["backing"]]
    return "-".join(words + [key for key in ("split", "persistent", "in_order") if plan[key]])


def run(*, noise: bool, **options: Any) -> list[list[Any]]:
    """Some epochs of batches."""
    seed_everything(3)
    with stoker.DataLoader(Mixture(ROWS, noise=noise), batch_size=BATCH, shuffle=True, **options) as loader:
        return [list(loader) for _ in range(EPOCHS)]


def _first_label(batch: Any) -> int:
    return int(batch["label"][0])


@pytest.fixture
def backing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Force the pool's arenas onto one backing; the made ones are listed."""
    made: list[str] = []

    def make() -> Arena:
        arena = Arena(backing=request.param)
        made.append(arena.backing)
        return arena

    monkeypatch.setattr("stoker._runtime.pool.pool.Arena", make)
    return made


@pytest.mark.parametrize(
    ("plan", "backing"),
    [(plan, plan["backing"]) for plan in PLANS],
    ids=map(_name, PLANS),
    indirect=["backing"],
)
def test_batches_equal_those_without_workers(plan: dict[str, Any], backing: list[str]) -> None:
    threads = plan["method"] == "thread"
    noise = not threads  # the global generators are not a thread's own
    expected = run(noise=noise)
    options: dict[str, Any] = (
        {"executor": "thread"} if threads else {"multiprocessing_context": plan["method"]}
    )
    found = run(
        noise=noise,
        num_workers=2,
        split_batches=plan["split"],
        persistent_workers=plan["persistent"],
        in_order=plan["in_order"],
        **options,
    )
    if not plan["in_order"]:
        expected, found = ([sorted(epoch, key=_first_label) for epoch in run] for run in (expected, found))
    assert_same(expected, found)
    if not threads:
        assert set(backing) == {plan["backing"]}
        assert len(backing) == 1, "one arena serves all epochs of a loader"


class Repeating:
    """Its samples are their indices."""

    def __getitem__(self, index: Any) -> Any:
        return index

    def __len__(self) -> int:
        return 1 << 20


LARGE: list[list[Any]] = [
    list(range(50_000)),
    [("key " * 20, str(number)) for number in range(3000)],
    list(range(7)),
    list(range(1 << 16, (1 << 16) + 50_000)),
]


@pytest.mark.parametrize("batched", [True, False])
def test_large_indices_travel_through_the_slot(batched: bool) -> None:
    dataset: Any = Repeating()
    if batched:
        loader = stoker.DataLoader(dataset, batch_sampler=LARGE, collate_fn=tuple, num_workers=2)
    else:  # one huge index instead of many
        loader = stoker.DataLoader(dataset, None, sampler=LARGE, collate_fn=tuple, num_workers=2)
    assert list(loader) == [tuple(indices) for indices in LARGE]


def test_large_indices_of_a_split_batch() -> None:
    wanted = [list(range(50_000)), list(range(30_000))]
    dataset: Any = Repeating()
    found = list(stoker.DataLoader(dataset, batch_sampler=wanted, num_workers=2))
    assert_same([torch.tensor(indices) for indices in wanted], found)


def test_a_file_serves_where_there_is_no_memfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    expected = run(noise=True)
    assert_same(expected, run(noise=True, num_workers=2, persistent_workers=True))


@pytest.mark.parametrize("persistent", [False, True])
def test_iterators_of_one_loader_are_independent(persistent: bool) -> None:
    expected = run(noise=True)[0]
    dataset = Mixture(ROWS, noise=True)
    with stoker.DataLoader(
        dataset, BATCH, shuffle=True, num_workers=2, persistent_workers=persistent
    ) as loader:
        seed_everything(3)
        first = iter(loader)
        seed_everything(3)
        second = iter(loader)
        for batch in expected:
            assert_same(batch, next(first))
            assert_same(batch, next(second))
        assert next(first, None) is None
        assert next(second, None) is None


@pytest.mark.parametrize("killed", [False, True])
def test_an_executor_on_another_host_serves_the_loader(killed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine runs over any executor: here one without slots, whose workers can die."""
    expected = run(noise=True)
    monkeypatch.setitem(
        registry.MAKERS, "remote", lambda asked: RemoteExecutor(asked.spec, bound=asked.bound)
    )
    monkeypatch.setitem(arguments.EXECUTORS, "remote", arguments.ExecutorKind("remote"))
    seed_everything(3)
    options: dict[str, Any] = {"num_workers": 2, "executor": "remote", "persistent_workers": True}
    found: list[list[Any]] = []
    with stoker.DataLoader(Mixture(ROWS, noise=True), BATCH, shuffle=True, **options) as loader:
        for _ in range(EPOCHS):
            found.append([])
            for batch in loader:
                found[-1].append(batch)
                if killed and len(found[-1]) == 2:
                    pool: Any = loader._iterator
                    os.kill(pool._workers[0].pid, signal.SIGKILL)
                    del pool
    assert_same(expected, found)
