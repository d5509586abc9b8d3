"""Which start method is chosen, what is said about it, and how often."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from stoker._runtime.executors.process import start_method
from stoker._runtime.executors.process.start_method import (
    HAZARDS,
    ForkEvidence,
    ForkHazard,
    StartMethodChoice,
)
from stoker._runtime.protocol.worker_spec import WorkerSpec


@contextmanager
def thread_named(*, python: str | None = None, native: str | None = None) -> Iterator[None]:
    """A thread that is known by this name to Python or to the kernel."""
    ready, over = threading.Event(), threading.Event()

    def run() -> None:
        if native is not None:
            Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(native)
        ready.set()
        over.wait()

    thread = threading.Thread(target=run, name=python)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()
        task = Path(f"/proc/self/task/{thread.native_id}")
        deadline = time.monotonic() + 10
        while (
            task.exists() and time.monotonic() < deadline
        ):  # the kernel lists it a moment longer than Python
            os.sched_yield()


@pytest.fixture(autouse=True)
def _no_hazard_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for hazard in HAZARDS:
        monkeypatch.delitem(sys.modules, hazard.module, raising=False)


@pytest.fixture(autouse=True)
def _fork_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    get_context = torch.multiprocessing.get_context
    monkeypatch.setattr(
        torch.multiprocessing, "get_context", lambda method=None: get_context(method or "fork")
    )


@pytest.fixture
def polars_lives(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "polars", ModuleType("polars"))
    with thread_named(native="polars-0"):
        yield


def spec_of(dataset: Any) -> WorkerSpec:
    return WorkerSpec(
        dataset=dataset,
        iterable=False,
        auto_collation=True,
        collate_fn=list,
        drop_last=False,
        worker_init_fn=None,
        num_workers=1,
        rng="batch",
        rank=0,
        own_collate=False,
    )


def method(choice: StartMethodChoice) -> Any:
    return choice.context.get_start_method()


def names(found: tuple[ForkHazard, ...]) -> list[str]:
    return [hazard.module for hazard in found]


def test_each_module_is_listed_once_and_has_evidence() -> None:
    assert len({hazard.module for hazard in HAZARDS}) == len(HAZARDS)
    for hazard in HAZARDS:
        assert hazard.pool
        assert hazard.evidence.native or hazard.evidence.python
        assert all(len(name) <= 15 for name in hazard.evidence.native), "the kernel cuts names at 15"


def test_without_a_listed_module_no_thread_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_method, "_native_threads", lambda: pytest.fail("read /proc for nothing"))
    assert start_method.live_hazards() == ()


def test_a_thread_without_its_module_is_somebody_elses() -> None:
    with thread_named(native="polars-0", python="fsspecIO"):
        assert start_method.live_hazards() == ()


def test_a_module_without_its_threads_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for hazard in HAZARDS:
        monkeypatch.setitem(sys.modules, hazard.module, ModuleType(hazard.module))
    assert start_method.live_hazards() == ()


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.module)
def test_a_module_with_its_threads_is_one(hazard: ForkHazard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, hazard.module, ModuleType(hazard.module))
    for native in hazard.evidence.native:
        with thread_named(native=native + "7"):
            assert names(start_method.live_hazards()) == [hazard.module]
    for python in hazard.evidence.python:
        with thread_named(python=python):
            assert names(start_method.live_hazards()) == [hazard.module]
    assert start_method.live_hazards() == ()


def test_where_there_is_no_proc_python_threads_still_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(start_method, "_TASKS", tmp_path / "none")
    monkeypatch.setitem(sys.modules, "fsspec", ModuleType("fsspec"))
    with thread_named(python="fsspecIO"):
        assert names(start_method.live_hazards()) == ["fsspec"]


def test_evidence_needs_the_beginning_of_a_native_name_and_all_of_a_python_name() -> None:
    evidence = ForkEvidence(native=("av:",), python=("loop",))
    assert evidence.seen({"av:h264:df0"}, set())
    assert evidence.seen(set(), {"loop"})
    assert not evidence.seen({"java:"}, {"loop-2"})
    assert not ForkEvidence().seen({""}, {""})


def chosen(dataset: Any) -> StartMethodChoice:
    """What is chosen for a dataset by default; what was packed on the way is closed."""
    choice = start_method.choose(None, spec_of(dataset), name="train")
    if choice.packed_spec is not None:
        choice.packed_spec.close()
    return choice


def test_no_hazard_no_change() -> None:
    choice = start_method.choose(None, spec_of([1]), name="train")
    assert method(choice) == "fork"
    assert not choice.reason


@pytest.mark.usefixtures("polars_lives")
@pytest.mark.parametrize("given", ["fork", "spawn", "forkserver"])
def test_what_the_user_gave_stays(given: str) -> None:
    context = torch.multiprocessing.get_context(given)
    assert start_method.choose(context, spec_of([1]), name="train") == StartMethodChoice(context)


@pytest.mark.usefixtures("polars_lives")
def test_a_default_that_is_not_fork_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = torch.multiprocessing.get_context("spawn")
    monkeypatch.setattr(torch.multiprocessing, "get_context", lambda: spawn)
    assert start_method.choose(None, spec_of([1]), name="train") == StartMethodChoice(spawn)


@pytest.mark.usefixtures("polars_lives")
def test_a_live_hazard_moves_what_can_travel() -> None:
    choice = chosen([lambda: 1])
    assert method(choice) == "forkserver"
    assert names(choice.hazards) == ["polars"]
    for part in ("train: ", "polars (compute pool)", "module state", "multiprocessing_context="):
        assert part in choice.reason


@pytest.mark.usefixtures("polars_lives")
def test_a_copy_that_would_take_too_much_memory_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker._host.memory_available.room_bytes", lambda: 1 << 20)
    choice = chosen(np.zeros(1 << 20, np.uint8))
    assert method(choice) == "fork"
    assert "a copy of it may take 0 MiB" in choice.reason


@pytest.mark.usefixtures("polars_lives")
def test_what_cannot_travel_stays_and_is_named_by_its_path() -> None:
    choice = start_method.choose(None, spec_of(SimpleNamespace(lock=threading.Lock())), name="train")
    assert method(choice) == "fork"
    for part in ("train: ", "polars (compute pool)", "dataset.lock (lock)", "stack", "'fork'"):
        assert part in choice.reason


@pytest.mark.usefixtures("polars_lives")
def test_a_loader_is_warned_once_about_the_same_modules(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loader: set[str] = set()
    other: set[str] = set()
    for warned in (loader, loader, other):
        start_method.warn_once(chosen([1]), warned)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    monkeypatch.setitem(sys.modules, "fsspec", ModuleType("fsspec"))
    with thread_named(python="fsspecIO"):
        start_method.warn_once(chosen([1]), loader)
    assert "fsspec" in caplog.records[-1].getMessage()
    assert len(caplog.records) == 3


def test_nothing_to_tell_leaves_the_loader_alone(caplog: pytest.LogCaptureFixture) -> None:
    loader: set[str] = set()
    start_method.warn_once(start_method.choose(None, spec_of([1]), name="train"), loader)
    assert not loader
    assert not caplog.records
