"""No slot is reused, trimmed or unmapped before its copy is done, and nothing leaks, whatever becomes of the batch."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker._runtime.device.device_stager import EventFence
from stoker._runtime.device.host_registers import HOST_REGISTERS, HostRegister
from stoker.errors import LoaderClosed
from tests.fake_device import NAME, FakeDevice

WIDTH = 6000
BATCHES = 40
FAR_S = 1000.0
"""A delay that never passes: a copy runs only when somebody waits for it, or has asked often."""


class Wide(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((WIDTH,), float(index))


@pytest.fixture(autouse=True)
def _nothing_leaks(fake: FakeDevice) -> Iterator[None]:
    HOST_REGISTERS[NAME] = HostRegister(fake.register_host, fake.unregister_host)
    fake.order("late", delay_s=FAR_S, queries=1_000_000)
    yield
    gc.collect()
    fake.order("prompt")
    torch.accelerator.synchronize(0)
    left = fake.counters()
    assert (fake.registered(), left.live_blocks, left.pinned_blocks) == ([], 0, 0)


def load(**options: Any) -> stoker.DataLoader[torch.Tensor]:
    defaults: dict[str, Any] = {"num_workers": 2, "device": NAME, "persistent_workers": True}
    return stoker.DataLoader(Wide(), batch_size=1, **(defaults | options))


def numbers(batches: list[torch.Tensor]) -> list[list[float]]:
    """What the device has in each of them, read at the end."""
    return [batch.cpu().unique().tolist() for batch in batches]


ALL = [[float(index)] for index in range(BATCHES)]


@pytest.mark.parametrize("registers", [True, False])
@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_copies_that_run_at_the_very_end_read_what_the_worker_wrote(
    fake: FakeDevice, ahead: int, persistent: bool, registers: bool
) -> None:
    """Nobody waits for any copy before two epochs are over. Every slot is in use until then."""
    if not registers:
        fake.fail_registrations()
    with load(device_prefetch=ahead, persistent_workers=persistent) as loader:
        kept = [batch for _ in range(2) for batch in loader]
        assert numbers(kept) == ALL * 2
    del kept


def test_dropped_batches_keep_their_slots_until_their_copies_are_done(fake: FakeDevice) -> None:
    with load() as loader:
        kept = []
        for number, batch in enumerate(loader):
            if number % 3 == 0:
                kept.append(batch)
            del batch
        assert numbers(kept) == ALL[::3]
        del kept


def test_slots_are_free_again_when_their_copies_are_done(fake: FakeDevice) -> None:
    with load() as loader:
        for _ in range(3):
            assert len([batch.shape for batch in loader]) == BATCHES
        pool: Any = loader._iterator
        assert len(pool.slots) < BATCHES
        pool.fenced.wait_until(0)
        pool.reclaim()
        assert (len(pool.fenced), pool.slots.leased) == (0, 0)


def test_the_bytes_that_are_ahead_stay_within_the_memory_budget(fake: FakeDevice) -> None:
    budget = 3 * 4 * WIDTH
    with load(device_prefetch=16, prefetch_factor=16, memory_budget=budget) as loader:
        seen = []
        for batch in loader:
            seen.append(loader.stats()["device"]["ahead_bytes"])
            del batch
    assert max(seen) <= budget


def test_leaving_an_epoch_leaves_the_copies_alone(fake: FakeDevice) -> None:
    with load(device_prefetch=3) as loader:
        left = [batch for batch, _ in zip(loader, range(3), strict=False)]
        whole = list(loader)
        assert numbers(left) == ALL[:3]
        assert numbers(whole) == ALL
        assert loader.stats()["device"]["ahead"] == 0
        del left, whole


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_in_the_loop_leaves_the_copies_alone(
    fake: FakeDevice, error: type[BaseException]
) -> None:
    with load(device_prefetch=2) as loader:
        kept = []

        def train() -> None:
            for batch in loader:
                kept.append(batch)
                if len(kept) == 5:
                    raise error

        with contextlib.suppress(error):
            train()
        whole = list(loader)
        assert numbers(kept) == ALL[:5]
        assert numbers(whole) == ALL
        del kept[:], whole


def test_closing_waits_for_copies_before_memory_goes_away(fake: FakeDevice) -> None:
    loader = load(device_prefetch=2)
    batches = iter(loader)
    kept = [next(batches) for _ in range(4)]
    loader.close()
    assert fake.registered() == []
    assert numbers(kept) == ALL[:4]
    with pytest.raises(LoaderClosed):
        next(batches)
    assert numbers(kept) == ALL[:4]
    del kept, batches


def test_trimming_between_epochs_unregisters_first(fake: FakeDevice) -> None:
    with load() as loader:
        kept = list(loader)
        fake.order("prompt")
        torch.accelerator.synchronize(0)
        loader.trim()
        assert fake.registered() == []
        whole = list(loader)
        assert loader.stats()["device"]["registered_bytes"] > 0
        assert numbers(kept) == numbers(whole) == ALL
        del kept, whole


def test_a_loader_collected_on_another_thread(fake: FakeDevice) -> None:
    held: list[Any] = [load(persistent_workers=False, device_prefetch=2)]
    held.append(iter(held[0]))
    kept = [next(held[1]) for _ in range(3)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    gc.collect()
    assert fake.registered() == []
    assert numbers(kept) == ALL[:3]
    del kept


def test_batches_dropped_on_another_thread(fake: FakeDevice) -> None:
    with load() as loader:
        batches = iter(loader)
        kept = []
        for number in range(BATCHES):
            each = [next(batches)]
            if number % 2:
                thread = threading.Thread(target=each.clear)
                thread.start()
                thread.join()
            else:
                kept += each
        assert numbers(kept) == ALL[::2]
        del kept, each, batches


class Mover:
    """Moves its tensor itself, straight from the slot."""

    def __init__(self, inside: torch.Tensor) -> None:
        self.inside = inside

    def to(self, device: torch.device, non_blocking: bool = False) -> torch.Tensor:
        return self.inside.to(device, non_blocking=non_blocking)


class Refuser(Mover):
    """Begins a copy, and then raises for some batches."""

    def to(self, device: torch.device, non_blocking: bool = False) -> torch.Tensor:
        moved = super().to(device, non_blocking)
        if int(self.inside[0]) % 4 == 3:
            raise ValueError("does not want to")
        return moved


def movers(rows: list[torch.Tensor]) -> list[Any]:
    """The plain tensor goes with the one copy, for which the slot is registered."""
    return [rows[0], Mover(rows[0] + 0), Refuser(rows[0] + 0)]


def test_an_object_that_raises_leaves_the_copies_of_others_alone(fake: FakeDevice) -> None:
    """The last batch does, too: nothing that follows on its stream is waited for when the memory goes away."""
    refused = 0
    with load(collate_fn=movers) as loader:
        batches, kept = iter(loader), []
        while True:
            try:
                kept += next(batches)
            except ValueError:
                refused += 1
            except StopIteration:
                break
    assert refused == BATCHES // 4
    assert numbers(kept) == [each for each in ALL if each[0] % 4 != 3 for _ in range(3)]
    del kept, batches


def test_workers_killed_while_copies_are_under_way(fake: FakeDevice) -> None:
    with load(device_prefetch=2, restarts=10) as loader:
        kept = []
        batches = iter(loader)
        for number in range(BATCHES):
            kept.append(next(batches))
            if number % 8 == 3:
                os.kill(
                    batches._workers[number // 8 % 2].pid, signal.SIGKILL
                )  # both, so that the loader has to notice
        assert numbers(kept) == ALL
        assert loader.stats()["worker_deaths"] > 0
        del kept, batches


def test_a_fork_while_copies_are_under_way(fake: FakeDevice) -> None:
    with load(device_prefetch=2) as loader:
        batches = iter(loader)
        kept = [next(batches) for _ in range(5)]
        pid = os.fork()
        if pid == 0:
            kept.clear()
            del batches, loader
            gc.collect()
            os._exit(0)
        kept += batches
        assert os.waitpid(pid, 0)[1] == 0
        assert numbers(kept) == ALL
        del kept, batches


def test_a_loader_has_one_side_stream_for_life(fake: FakeDevice) -> None:
    with load(persistent_workers=False) as loader:
        assert len(list(loader)) == BATCHES
        before = fake.counters().streams
        for _ in range(4):
            assert len(list(loader)) == BATCHES
        assert fake.counters().streams == before


@pytest.mark.parametrize(
    "options", [{"prefetch_epochs": True}, {"prefetch_epochs": True, "in_order": False}, {"in_order": False}]
)
def test_epochs_opened_ahead_and_any_order(fake: FakeDevice, options: dict[str, Any]) -> None:
    with load(device_prefetch=3, **options) as loader:
        kept = [list(loader) for _ in range(3)]
        for epoch in kept:
            assert sorted(numbers(epoch)) == ALL
        del kept, epoch


@pytest.mark.parametrize("order", ["others_first", "random", "prompt"])
def test_the_consumers_stream_waits_and_the_buffer_is_not_given_away(fake: FakeDevice, order: Any) -> None:
    """Sums are queued on a stream of the consumer's own and read at the end. Batches are dropped at once."""
    fake.order(order, delay_s=FAR_S, queries=3)
    stream = torch.Stream(device=NAME)
    with load(device_prefetch=2) as loader, stream:
        sums = []
        for _ in range(2):
            for batch in loader:
                fake.occupy(0.01)
                sums.append(fake.checksum(batch))
                del batch
        wanted = [int(fake.checksum(torch.full((1, WIDTH), float(index)))) for index in range(BATCHES)]
        assert [int(each.cpu()) for each in sums] == wanted * 2
        del sums


def test_the_host_does_not_wait_for_the_device(fake: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []
    monkeypatch.setattr(EventFence, "wait", lambda *_: waits.append("copy"))
    with load() as loader:
        batches = iter(loader)
        kept = [next(batches) for _ in range(4)]
        assert waits == []
        monkeypatch.undo()
        assert fake.counters().in_flight > 0
        assert numbers(kept) == ALL[:4]
        del kept, batches
