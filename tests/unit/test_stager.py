"""Sources of copies live exactly until their fences are done. The stagers, the fences and their device are ours."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import pytest
import torch

from stoker._runtime.device.pinning import PinningStager
from stoker._runtime.device.stager import FencedSources, Source
from stoker._runtime.scheduler.slots import SlotState, SlotTable
from stoker._runtime.transport.arena import Arena


class Copy:
    """A fence that is done when the test says so, or when somebody waits for it."""

    def __init__(self) -> None:
        self.finished = False
        self.waits = 0

    def done(self) -> bool:
        return self.finished

    def wait(self) -> None:
        self.waits += 1
        self.finished = True


class Staged:
    """A staged batch, with its fence."""

    def __init__(self, batch: Any, fence: Copy | None = None) -> None:
        self.batch = batch
        self.fence = fence

    def ready(self) -> None:
        return None

    def take(self, sources: FencedSources) -> Any:
        return self.batch


class Late:
    """A stager whose copies go on after it returned."""

    ahead = 0

    def __init__(self) -> None:
        self.copies: list[Copy] = []

    def stage(self, source: Source) -> Staged:
        self.copies.append(Copy())
        return Staged(("staged", id(source.batch)), self.copies[-1])

    to_device = True

    def hold_back(self, *, ready: bool) -> None:
        return None

    def close(self) -> None:
        return None


class Batch:
    """A host batch that can be watched."""


@pytest.fixture
def sources() -> FencedSources:
    return FencedSources()


def staged(sources: FencedSources, stager: Any) -> weakref.ref[Batch]:
    """Stage a batch that nobody else holds, and take it. The next ``drop_done`` comes with the next ``next()``."""
    batch = Batch()
    assert sources.stage(stager, Source(batch)).take(sources) == ("staged", id(batch))
    return weakref.ref(batch)


def test_a_source_lives_until_its_fence_is_done(sources: FencedSources) -> None:
    stager = Late()
    source = staged(sources, stager)
    sources.drop_done()
    assert source() is not None
    stager.copies[0].finished = True
    sources.drop_done()
    assert source() is None
    assert stager.copies[0].waits == 0, "the host never waits for a copy"


def test_sources_that_are_done_are_dropped_and_others_kept(sources: FencedSources) -> None:
    stager = Late()
    first = staged(sources, stager)
    stager.copies[0].finished = True
    second = staged(sources, stager)
    sources.drop_done()
    assert (first(), len(sources)) == (None, 1)
    assert second() is not None


def test_a_source_stays_behind_one_that_is_still_read(sources: FencedSources) -> None:
    stager = Late()
    kept = [staged(sources, stager) for _ in range(3)]
    stager.copies[1].finished = True
    sources.drop_done()
    assert all(source() is not None for source in kept)
    stager.copies[0].finished = True
    sources.drop_done()
    assert [source() is None for source in kept] == [True, True, False]


def test_without_a_fence_nothing_is_kept(sources: FencedSources) -> None:
    class Done:
        def stage(self, source: Source) -> Staged:
            return Staged(("staged", id(source.batch)))

    assert staged(sources, Done())() is None
    assert len(sources) == 0


def test_closing_waits_for_every_copy(sources: FencedSources) -> None:
    stager = Late()
    kept = [staged(sources, stager) for _ in range(3)]
    sources.close()
    sources.close()
    assert [copy.waits for copy in stager.copies] == [1, 1, 1]
    assert [source() for source in kept] == [None] * 3


@pytest.mark.parametrize(("error", "kept"), [(ValueError, 0), (KeyboardInterrupt, 1)])
def test_an_error_drops_the_source_and_an_interrupt_keeps_it(
    sources: FencedSources, error: type[BaseException], kept: int
) -> None:
    """An interrupt may have come after the copy began."""

    class Broken(Late):
        def stage(self, source: Source) -> Staged:
            raise error

    with pytest.raises(error):
        sources.stage(Broken(), Source(Batch()))
    assert len(sources) == kept
    assert sources.lost is bool(kept)
    sources.close()
    assert len(sources) == 0


def test_a_slot_is_not_free_before_the_fence_is_done(sources: FencedSources) -> None:
    arena, slots, stager = Arena(), SlotTable(), Late()

    def reclaim() -> SlotState:
        sources.drop_done()
        while arena.released:
            slots.release(arena.released.popleft())
        return slots.state(ref.index)

    ref = slots.acquire()
    arena.put(ref.index, bytes(64))
    slots.lease(ref)
    sources.stage(stager, Source({"x": arena.lease(ref, 64).tensor(0, (16,), torch.float32)}))
    assert reclaim() is SlotState.LEASED
    stager.copies[0].finished = True
    assert reclaim() is SlotState.FREE
    arena.close()


@pytest.mark.parametrize("worker_thread", [False, True])
def test_pinning_calls_custom_methods(sources: FencedSources, worker_thread: bool) -> None:
    class Custom:
        def pin_memory(self) -> str:
            return "pinned by itself"

    stager = PinningStager(None, worker_thread=worker_thread)
    assert sources.stage(stager, Source(Custom())).take(sources) == "pinned by itself"
    sources.drop_done()
    assert len(sources) == 0
    stager.close()


@pytest.mark.parametrize("worker_thread", [False, True])
def test_an_error_of_pinning_comes_when_the_batch_is_taken(
    sources: FencedSources, worker_thread: bool
) -> None:
    class Broken:
        def pin_memory(self) -> str:
            raise OSError("cannot pin")

    stager = PinningStager(None, worker_thread=worker_thread)
    first, second = [sources.stage(stager, Source(each)) for each in (Broken(), {"a": 1})]
    first.ready()
    with pytest.raises(OSError, match="cannot pin"):
        first.take(sources)
    assert second.take(sources) == {"a": 1}
    stager.close()
    stager.close()
    assert sources.stage(stager, Source(["after its end"])).take(sources) == ["after its end"]


def test_memory_does_not_go_away_while_a_copy_begins(sources: FencedSources) -> None:
    """Another thread closes the loader after a copy began, and before its fence is known."""
    copy, closers = Copy(), []

    class Interrupted(Late):
        def stage(self, source: Source) -> Staged:
            closers.append(threading.Thread(target=sources.close))
            closers[0].start()
            closers[0].join(0.005)
            assert closers[0].is_alive()
            return Staged(("staged", id(source.batch)), copy)

    sources.stage(Interrupted(), Source(Batch()))
    closers[0].join()
    assert copy.waits
    assert len(sources) == 0


def test_nothing_is_staged_when_the_memory_has_gone(sources: FencedSources) -> None:
    sources.close()
    late = Late()
    with pytest.raises(ValueError, match="closed"):
        sources.stage(late, Source(Batch()))
    assert late.copies == []
    copy = Copy()
    sources.keep(copy, Batch())
    assert copy.waits
    assert len(sources) == 0
