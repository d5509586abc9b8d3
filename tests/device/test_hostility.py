"""The fake accelerator is hostile: a small prefetcher is right on it, and each of four bugs gives wrong bytes or strands memory.

The bugs are those that other prefetchers have had: ray-project/ray#66344 (buffer not recorded),
huggingface/pytorch-image-models#2781 (a stream per epoch), and host memory that is written again too early.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import pytest
import torch

from tests.fake_device import NAME, FakeDevice

SLOTS, BATCH_BYTES, BATCHES = 3, 40_000, 40


class Bug(Enum):
    """What the prefetcher forgets."""

    NONE = "nothing"
    FREED_AT_HAND_OVER = "a slot is free when its batch is handed over, not when its copy is done"
    NO_WAIT = "the consumer's stream does not wait for the copy"
    STREAM_PER_EPOCH = "each epoch makes a stream"
    NOT_RECORDED = "the buffer is not recorded on the consumer's stream"


class Slot(NamedTuple):
    """Registered host memory for one batch."""

    memory: mmap.mmap
    tensor: torch.Tensor


class Ahead(NamedTuple):
    """A batch on its way to the device."""

    slot: Slot
    buffer: torch.Tensor
    event: torch.Event


@dataclass
class Prefetcher:
    """One batch ahead, from a ring of registered slots, on a side stream."""

    fake: FakeDevice
    bug: Bug

    def __post_init__(self) -> None:
        self.slots = []
        for _ in range(SLOTS):
            memory = mmap.mmap(-1, BATCH_BYTES)
            slot = Slot(memory, torch.frombuffer(memory, dtype=torch.uint8))
            assert self.fake.register_host(slot.tensor.data_ptr(), BATCH_BYTES) == 0
            self.slots.append(slot)
        self.free = deque(self.slots)
        self.busy: deque[Ahead] = deque()
        self.stream = torch.Stream(NAME)

    def close(self) -> None:
        """Give the slots back, when no copy reads them."""
        self.stream.synchronize()
        for slot in self.slots:
            assert self.fake.unregister_host(slot.tensor.data_ptr()) == 0

    def epoch(self) -> Iterator[torch.Tensor]:
        """All batches, on the device."""
        if self.bug is Bug.STREAM_PER_EPOCH:
            self.stream = torch.Stream(NAME)
        ahead = self.begin(0)
        for number in range(BATCHES):
            following = self.begin(number + 1) if number + 1 < BATCHES else None
            yield self.handed_over(ahead)
            if following is not None:
                ahead = following

    def begin(self, number: int) -> Ahead:
        """Write the batch into a free slot and begin its copy."""
        while not self.free:
            oldest = self.busy.popleft()
            oldest.event.synchronize()
            self.free.append(oldest.slot)
        slot = self.free.popleft()
        slot.tensor.copy_(content(number))
        event = torch.Event(NAME)
        with self.stream:
            buffer = torch.empty(BATCH_BYTES, dtype=torch.uint8, device=NAME)
            buffer.copy_(slot.tensor, non_blocking=True)
            event.record(self.stream)
        return Ahead(slot, buffer, event)

    def handed_over(self, ahead: Ahead) -> torch.Tensor:
        """The batch, for the current stream."""
        consumer = torch.accelerator.current_stream()
        if self.bug is not Bug.NO_WAIT:
            ahead.event.wait(consumer)
        if self.bug is not Bug.NOT_RECORDED:
            ahead.buffer.record_stream(consumer)
        if self.bug is Bug.FREED_AT_HAND_OVER:
            self.free.append(ahead.slot)
        else:
            self.busy.append(ahead)
        return ahead.buffer


def content(number: int) -> torch.Tensor:
    """The bytes of a batch."""
    return torch.full((BATCH_BYTES,), number % 251, dtype=torch.uint8)


def wrong_batches(fake: FakeDevice, prefetcher: Prefetcher) -> int:
    """How many batches of an epoch a kernel on the consumer's stream saw differently. The host waits every few steps only."""
    sums: list[torch.Tensor] = []
    for batch in prefetcher.epoch():
        sums.append(fake.checksum(batch))
        del batch
        if len(sums) % 5 == 0:
            torch.accelerator.current_stream().synchronize()
    expected = [fake.checksum(content(number)).item() for number in range(BATCHES)]
    return sum(int(seen.item()) != wanted for seen, wanted in zip(sums, expected, strict=True))


@pytest.mark.parametrize("order", ["prompt", "late", "others_first", "random"])
def test_a_right_prefetcher_is_right_in_every_order(fake, order):
    fake.order(order, delay_s=1000, seed=7)
    prefetcher = Prefetcher(fake, Bug.NONE)
    assert [wrong_batches(fake, prefetcher) for _ in range(3)] == [0, 0, 0]
    prefetcher.close()
    assert fake.counters().registrations == 0


@pytest.mark.parametrize("bug", [Bug.FREED_AT_HAND_OVER, Bug.NO_WAIT, Bug.NOT_RECORDED])
def test_a_bug_gives_wrong_bytes(fake, bug):
    fake.order("random", delay_s=1000, seed=7)
    prefetcher = Prefetcher(fake, bug)
    assert wrong_batches(fake, prefetcher) > 0
    prefetcher.close()


@pytest.mark.parametrize("bug", [Bug.FREED_AT_HAND_OVER, Bug.NO_WAIT, Bug.NOT_RECORDED])
def test_a_prompt_device_forgives_it(fake, bug):
    fake.order("prompt")
    prefetcher = Prefetcher(fake, bug)
    wrong = 0
    for number, batch in enumerate(prefetcher.epoch()):
        torch.accelerator.synchronize()
        wrong += not torch.equal(batch.cpu(), content(number))
    assert wrong == 0
    prefetcher.close()


@pytest.mark.parametrize(("bug", "grows"), [(Bug.NONE, False), (Bug.STREAM_PER_EPOCH, True)])
def test_a_stream_per_epoch_strands_memory(fake, bug, grows):
    fake.order("late", delay_s=1000)
    prefetcher = Prefetcher(fake, bug)
    assert wrong_batches(fake, prefetcher) == 0
    torch.accelerator.synchronize()
    before = fake.counters().reserved_bytes
    for _ in range(5):
        assert wrong_batches(fake, prefetcher) == 0
        torch.accelerator.synchronize()
    assert (fake.counters().reserved_bytes - before >= 5 * BATCH_BYTES) == grows
    prefetcher.close()
