"""The stress run of ``tests.device.stress``, short; and four bugs seeded into the product, each of which the device shows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch

import stoker
from stoker._runtime.device import device_stager
from stoker._runtime.device.device_stager import DeviceCopy, DeviceStager, EventFence
from stoker._runtime.device.host_registers import HOST_REGISTERS, HostRegister
from tests.device.stress import BATCH_ROWS, Draws, Patterns, stress
from tests.fake_device import NAME, FakeDevice

BATCHES = 40
SEVERAL = 7
"""So many batches are read by kernels before the host waits for them."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Killed workers and refused memory are reported at length."""
    caplog.set_level(logging.CRITICAL, logger="stoker")


@pytest.mark.parametrize("seed", [1, 2])
def test_no_wrong_byte_and_nothing_left_under_breaks_kills_and_forks(fake: FakeDevice, seed: int) -> None:
    outcome = stress(fake, 400, seed)
    assert outcome.findings == []
    assert outcome.batches >= 400
    assert {"killed", "forked", "broken off"} <= set(outcome.happened)


def test_no_wrong_byte_with_threads(fake: FakeDevice) -> None:
    outcome = stress(fake, 300, 3, processes=False)
    assert outcome.findings == []
    assert outcome.batches >= 300


def slot_freed_at_hand_over(patch: pytest.MonkeyPatch) -> None:
    class EagerFence(EventFence):
        """Takes every copy for done."""

        __slots__ = ()

        def done(self) -> bool:
            return True

        def wait(self) -> None:
            pass

    patch.setattr(device_stager, "EventFence", EagerFence)


def no_wait_for_the_event(patch: pytest.MonkeyPatch) -> None:
    right = DeviceCopy.take

    def take(self: DeviceCopy, sources: Any) -> Any:
        self._event = torch.Event(NAME)  # never recorded: nothing waits for it
        return right(self, sources)

    patch.setattr(DeviceCopy, "take", take)


def buffer_not_recorded(patch: pytest.MonkeyPatch) -> None:
    right = DeviceCopy.take

    def take(self: DeviceCopy, sources: Any) -> Any:
        assert self._buffer is not None
        self._buffer = torch.empty_like(self._buffer)  # this one is recorded, the batch's is not
        return right(self, sources)

    patch.setattr(DeviceCopy, "take", take)


def stream_per_epoch(patch: pytest.MonkeyPatch) -> None:
    right = DeviceStager.__init__

    def init(self: DeviceStager, link: Any, ahead: int, *, worker_thread: bool) -> None:
        link.stream = torch.Stream(link.device)
        right(self, link, ahead, worker_thread=worker_thread)

    patch.setattr(DeviceStager, "__init__", init)


def no_bug(patch: pytest.MonkeyPatch) -> None:
    """The product as it is."""


class Trial:
    """A loader on the device, with some epochs of many batches that nothing on the host waits for."""

    def __init__(self, device: FakeDevice) -> None:
        HOST_REGISTERS[NAME] = HostRegister(device.register_host, device.unregister_host)
        device.order("random", delay_s=1000, queries=1 << 30, seed=5)
        self._device = device
        self._data, self._draws = Patterns(6000), Draws(Random(1))
        self._draws.batches = BATCHES
        self._loader: Any = stoker.DataLoader(
            self._data, batch_sampler=self._draws, num_workers=2, device=NAME
        )

    def wrong_batches(self) -> int:
        """How many batches of an epoch a kernel saw with other bytes than they have."""
        seen: list[torch.Tensor] = []
        for batch in self._loader:
            seen.append(self._device.checksum(batch["bytes"]))
            del batch
            if len(seen) % SEVERAL == 0:
                torch.accelerator.current_stream().synchronize()
        right = [self._device.checksum(self._data.batch(rows)["bytes"]) for rows in self._draws.order]
        return sum(one.item() != other.item() for one, other in zip(seen, right, strict=True))

    def grown_batches(self) -> float:
        """How much more memory the device's allocator has after twelve epochs than after two, in batches.

        Within an epoch some more or fewer blocks wait for the consumer's stream. A stream that was left keeps one at least.
        """
        sizes = []
        for _ in range(12):
            self.wrong_batches()
            torch.accelerator.synchronize()
            sizes.append(self._device.counters().reserved_bytes)
        return (sizes[-1] - sizes[1]) / sum(
            each.nbytes for each in self._data.batch([0] * BATCH_ROWS).values()
        )

    def close(self) -> None:
        """End the loader, however its copies stand."""
        torch.accelerator.synchronize()
        self._loader.close()


Seed = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("bug", [slot_freed_at_hand_over, no_wait_for_the_event, buffer_not_recorded])
def test_a_seeded_bug_gives_wrong_bytes(
    careless: FakeDevice, monkeypatch: pytest.MonkeyPatch, bug: Seed
) -> None:
    bug(monkeypatch)
    trial = Trial(careless)
    assert sum(trial.wrong_batches() for _ in range(3)) > 0
    trial.close()


@pytest.mark.parametrize(("bug", "strands"), [(no_bug, False), (stream_per_epoch, True)])
def test_a_stream_per_epoch_strands_memory(
    fake: FakeDevice, monkeypatch: pytest.MonkeyPatch, bug: Seed, strands: bool
) -> None:
    bug(monkeypatch)
    trial = Trial(fake)
    assert (trial.grown_batches() >= 10) == strands
    trial.close()


def test_without_a_bug_every_batch_is_right_and_nothing_stays(fake: FakeDevice) -> None:
    trial = Trial(fake)
    streams = fake.counters().streams
    assert [trial.wrong_batches() for _ in range(3)] == [0, 0, 0]
    assert fake.counters().streams == streams + 1
    trial.close()
    assert fake.registered() == []
