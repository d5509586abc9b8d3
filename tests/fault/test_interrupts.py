"""Ctrl-C at the places where it cost a batch, a descriptor or the trainer's random numbers, as the soak found them."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker._receipt import sketch
from stoker._runtime.executors import thread
from stoker._runtime.executors.process import launcher
from stoker._runtime.executors.process.channels import ResultPipe, TaskChannel
from stoker._runtime.plan import planner as planner_module
from stoker._runtime.plan.planner import Planner
from stoker._runtime.pool.loader_stats import LoaderStats
from stoker._runtime.pool.pool import Pool
from stoker._runtime.protocol import status_page
from stoker._runtime.protocol.status_page import StatusPage
from stoker._runtime.transport import shared_pages
from stoker._runtime.transport.arena import Arena
from stoker._runtime.worker.cpu_meter import CpuMeter
from stoker._runtime.worker.rng.trainer_generators import TrainerGenerators
from stoker.errors import Interrupted
from stoker.testing import holdings
from tests.fault.rows import Made
from tests.soak.interrupter import Interrupt, Rehearsal

WAYS = [
    {},
    {"num_workers": 1, "executor": "thread"},
    {"num_workers": 1, "multiprocessing_context": "fork"},
]
NAMES = ["inline", "thread", "fork"]
VALUES = list(range(12))


def once(call: Callable[..., Any], *, after: bool = False) -> Callable[..., Any]:
    """The same function, but its first call is interrupted: before it does anything, or behind."""
    calls: list[None] = []

    def interrupted(*given: Any, **named: Any) -> Any:
        calls.append(None)
        if len(calls) > 1:
            return call(*given, **named)
        if after:
            call(*given, **named)
        raise KeyboardInterrupt

    return interrupted


def loader_of(**options: Any) -> Any:
    return stoker.DataLoader(Made(int), batch_size=2, **options)


def values(loader: Any) -> list[int]:
    return [value for batch in loader for value in batch.tolist()]


@pytest.mark.parametrize("options", WAYS, ids=NAMES)
def test_a_batch_that_was_on_its_way_does_not_count(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with loader_of(**options) as loader:
        iterator = iter(loader)
        assert next(iterator).tolist() == [0, 1]
        observer = iterator._iteration.observer
        with monkeypatch.context() as patch:
            patch.setattr(observer, "opened", once(observer.opened))
            with pytest.raises(KeyboardInterrupt):
                next(iterator)
        state, receipt = loader.state_dict(), loader.receipt()
        with pytest.raises(Interrupted):
            next(iterator)
    assert receipt.batches == 1
    with loader_of() as other:
        other.load_state_dict(state)
        assert values(other) == VALUES[2:]


@pytest.mark.parametrize("in_order", [True, False])
def test_a_batch_that_is_taken_back_leaves_no_trace(in_order: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with loader_of(num_workers=1, executor="thread", in_order=in_order) as loader:
        iterator = iter(loader)
        next(iterator)
        before = loader.state_dict(), loader.state_dict(read_ahead=1)
        with monkeypatch.context() as patch:
            patch.setattr(LoaderStats, "note_batch", once(LoaderStats.note_batch))
            with pytest.raises(KeyboardInterrupt):
                next(iterator)
        assert (loader.state_dict(), loader.state_dict(read_ahead=1)) == before


@pytest.mark.parametrize("waits", ["for the pid", "to send"])
def test_an_interrupt_while_the_fork_server_is_waited_for_leaves_nothing(
    waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What multiprocessing opens for a process was open until that process ended, and it printed a traceback."""
    with loader_of(num_workers=2, multiprocessing_context="forkserver") as loader:
        assert values(loader) == VALUES
        gc.collect()
        before = holdings().descriptors
        with monkeypatch.context() as patch:
            name = "await_readable" if waits == "for the pid" else "send_to_child"
            patch.setattr(launcher, name, once(getattr(launcher, name)))
            with pytest.raises(KeyboardInterrupt) as caught:
                iter(loader)
        assert caught.tb is not None  # which may hold what the start had opened
        assert not holdings().descriptors - before
        assert values(loader) == VALUES


def test_an_interrupt_leaves_no_memory_mapped_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes after the system has mapped the memory, and before the mapping is anybody's."""
    arena = Arena()
    try:
        before = holdings().mappings
        with Rehearsal() as seen:
            shared_pages.SharedMapping(arena.fd, 0, 1 << 16)
        assert holdings().mappings == before
        code = shared_pages.SharedMapping.__init__.__code__
        places = [place for place in seen.places if place.code is code]
        assert places
        for place in places:
            interrupt = Interrupt(place, 1, "spares nothing")
            with contextlib.suppress(KeyboardInterrupt), interrupt:
                shared_pages.SharedMapping(arena.fd, 0, 1 << 16)
            assert interrupt.done
            gc.collect()
            assert holdings().mappings == before, interrupt.where
    finally:
        arena.close()


def test_bad_samples_of_a_batch_that_is_taken_back_are_not_in_the_receipt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bad(index: int) -> int:
        if index == 3:
            raise ValueError(index)
        return index

    with stoker.DataLoader(Made(bad), batch_size=2, on_bad_sample="skip") as loader:
        iterator: Any = iter(loader)
        next(iterator)
        observer = iterator._iteration.observer
        with monkeypatch.context() as patch:
            patch.setattr(observer, "opened", once(observer.opened))
            with pytest.raises(KeyboardInterrupt):
                next(iterator)
        receipt = loader.receipt()
        assert receipt is not None
        assert (receipt.batches, receipt.bad_count, receipt.bad) == (1, 0, [])


def test_an_interrupt_while_a_receipt_is_summed_loses_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    receipts = []
    for disturbed in (False, True):
        with loader_of() as loader:
            values(loader)
            if disturbed:
                with monkeypatch.context() as patch:
                    patch.setattr(sketch, "add", once(sketch.add, after=True))
                    with pytest.raises(KeyboardInterrupt):
                        loader.receipt()
            receipts.append(loader.receipt())
    plain = [(each.batches, each.samples, each.samples_digest, each.digest, each.order) for each in receipts]
    assert plain[0] == plain[1]
    assert np.array_equal(receipts[0].sketch, receipts[1].sketch)
    assert np.array_equal(receipts[0].entries, receipts[1].entries)


def test_what_the_sampler_gave_stays_until_it_is_a_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Planner(iter([[1], [2]]), epoch=1, seed=0, batched=True, splittable=False)
    with monkeypatch.context() as patch:
        patch.setattr(planner_module, "_rows_of", once(planner_module._rows_of))
        with pytest.raises(KeyboardInterrupt):
            plan.plan()
    found: list[Any] = [plan.plan(), plan.plan()]
    assert [(each.ticket.seq, each.ticket.indices) for each in found] == [(0, [1]), (1, [2])]


@pytest.mark.parametrize("options", WAYS[:2], ids=NAMES[:2])
def test_a_generator_that_was_interrupted_does_not_end_the_epoch_in_silence(options: dict[str, Any]) -> None:
    def batches() -> Iterator[list[int]]:
        yield [0, 1]
        raise KeyboardInterrupt
        yield [2, 3]

    class Batches:
        def __iter__(self) -> Iterator[list[int]]:
            return batches()

    seen: list[int] = []
    with stoker.DataLoader(Made(int), batch_sampler=Batches(), **options) as loader:
        with pytest.raises(KeyboardInterrupt):
            iterator = iter(loader)
            seen += next(iterator).tolist()
            next(iterator)
        if "num_workers" in options:
            return  # it was planned ahead, in ``iter``: there is no iterator
        with pytest.raises(Interrupted, match="interrupted the sampler"):
            next(iterator)
    assert seen == [0, 1]


def test_an_interrupt_behind_a_wait_for_threads_loses_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    with loader_of(num_workers=1, executor="thread") as loader:
        iterator = iter(loader)
        guard = iterator._pool.executor.guard
        hold = type(guard).hold
        calls: list[None] = []

        def interrupted(held: Any) -> None:
            calls.append(None)
            if len(calls) == 1:
                raise KeyboardInterrupt
            hold(held)

        with monkeypatch.context() as patch:
            patch.setattr(type(guard), "hold", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(iterator)
        assert values(iterator) == VALUES


def test_the_autoscaler_does_not_forget_an_interrupt_that_lost_messages() -> None:
    """It looks for messages while workers start, and whoever has handled messages releases the executor's guard."""
    with loader_of(num_workers=1) as loader:
        iterator = iter(loader)
        next(iterator)
        iteration: Any = iterator._iteration
        iteration._executor.guard.hold()  # as an interrupt leaves it behind a read
        iteration._autoscaler = SimpleNamespace(due_ns=0, look=lambda of: of.listen(), detach=lambda of: None)
        with pytest.raises(Interrupted):
            next(iterator)


def test_an_interrupt_behind_a_batch_made_here_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with loader_of(on_bad_sample="skip") as loader:
        iterator = iter(loader)
        executor = iterator._pool.executor
        with monkeypatch.context() as patch:
            patch.setattr(executor, "_carry_out", once(executor._carry_out, after=True))
            with pytest.raises(KeyboardInterrupt):
                next(iterator)
        with pytest.raises(Interrupted):
            next(iterator)
        assert values(loader) == VALUES


def generators() -> tuple[Any, ...]:
    return torch.default_generator.get_state().tolist(), str(np.random.get_state()), random.getstate()


def test_the_trainers_generators_survive_an_interrupt_anywhere() -> None:
    def draw() -> None:
        kept = TrainerGenerators()
        with kept, kept:
            random.seed(1)
            np.random.seed(1)
            torch.manual_seed(1)

    np.random.standard_normal()  # leaves a second number in store
    draw()
    with Rehearsal() as seen:
        draw()
    assert seen.places
    done = 0
    for place, count in seen.places.items():
        for occurrence in range(1, count + 1):
            before = generators()
            interrupt = Interrupt(place, occurrence, "generators")
            try:
                with interrupt:
                    draw()
            except KeyboardInterrupt:
                done += 1
            assert generators() == before, interrupt.where
    assert done > len(seen.places) / 2


@pytest.mark.parametrize("options", WAYS[1:], ids=NAMES[1:])
def test_whoever_was_interrupted_while_it_closed_can_close_again(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = loader_of(persistent_workers=True, **options)
    values(loader)
    pool: Any = loader._iterator
    executor = pool.executor
    with monkeypatch.context() as patch:
        patch.setattr(executor, "close", once(executor.close))
        with pytest.raises(KeyboardInterrupt):
            pool.close()
    assert not pool.ended
    loader.close()
    pool.close()
    assert pool.ended


def test_a_pool_that_was_interrupted_while_it_was_made_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Pool, "_open", once(Pool._open))
        with (
            loader_of(num_workers=1, multiprocessing_context="fork") as loader,
            pytest.raises(KeyboardInterrupt),
        ):
            iter(loader)


OWNERS: dict[str, Callable[[], Any]] = {
    "result pipe": ResultPipe,
    "task channel": TaskChannel,
    "status page": StatusPage.create,
    "arena": Arena,
    "meter": CpuMeter,
}


@pytest.mark.parametrize("owner", OWNERS)
def test_no_descriptor_is_closed_twice(owner: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After the first time its number may be somebody else's."""
    owned = OWNERS[owner]()
    closed: list[int] = []
    close = os.close

    def counted(fd: int) -> None:
        close(fd)
        closed.append(fd)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", counted)
        for _ in range(4):
            try:
                owned.close()
            except KeyboardInterrupt:
                continue
            break
    assert closed
    assert len(closed) == len(set(closed))


def test_threads_whose_status_page_was_half_closed_can_be_closed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loader = loader_of(num_workers=1, executor="thread", persistent_workers=True)
    values(loader)
    pool: Any = loader._iterator
    page = pool.executor._status
    with monkeypatch.context() as patch:
        patch.setattr(page, "_view", Interrupting(page._view))
        with pytest.raises(KeyboardInterrupt):
            pool.close()
    pool.close()
    assert page.fd < 0
    loader.close()


class Interrupting:
    """A view whose first release is interrupted."""

    def __init__(self, view: memoryview) -> None:
        self.release = once(view.release, after=True)


STARTS: dict[str, dict[str, Any]] = {
    "thread": {"num_workers": 1, "executor": "thread"},
    "fork": {"num_workers": 1, "multiprocessing_context": "fork"},
    "forker": {"num_workers": 4, "multiprocessing_context": "fork"},
}
STARTING = ("/executors/", "/pool/pool.py", "/pool/lifecycle.py", "/protocol/", "/transport/")
PLACES = 60
"""So many places of a start, evenly spaced: some forks each."""


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("how", STARTS)
def test_an_interrupt_anywhere_in_a_start_leaves_nothing_open(how: str) -> None:
    def start() -> Any:
        return iter(loader_of(**STARTS[how]))

    start()  # what is made once per process
    with Rehearsal() as seen:
        started = start()
    del started  # not above: its end is another matter
    gc.collect()
    before = leftovers()
    places = [each for each in seen.places if any(part in each.code.co_filename for part in STARTING)]
    done = 0
    for place in places[:: max(1, len(places) // PLACES)]:
        interrupt = Interrupt(place, 1, "test_an_interrupt_anywhere")
        started = None
        try:
            with interrupt:
                started = start()
        except KeyboardInterrupt:
            done += 1
        del started
        if leftovers() != before:  # or in a cycle
            gc.collect()
        assert leftovers() == before, interrupt.where
    assert done > PLACES / 2


def leftovers() -> tuple[int, int]:
    """How many descriptors and children this process has."""
    children = len(multiprocessing.active_children())
    return len(os.listdir("/proc/self/fd")), children


def test_a_thread_executor_that_was_interrupted_while_it_was_made_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(thread, "cache_counts", once(status_page.cache_counts))
        with loader_of(num_workers=1, executor="thread") as loader, pytest.raises(KeyboardInterrupt):
            iter(loader)
