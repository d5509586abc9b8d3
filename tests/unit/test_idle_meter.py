"""Waits beside a device that is at work, done, or broken: told by events that a fake device has on a clock of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stoker._runtime.device import idle_meter
from stoker._runtime.device.idle_meter import IdleMeter

MS = 1_000_000


class Device:
    """One stream: work is done in order, and an event happens when the work before it is done, but not before it was recorded."""

    def __init__(self) -> None:
        self.host_ms = 0.0
        self.busy_until_ms = 0.0
        self.broken = False

    def launch(self, ms: float) -> None:
        self.busy_until_ms = max(self.busy_until_ms, self.host_ms) + ms

    def event(self) -> Any:
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.at_ms = -1.0

    def record(self) -> None:
        if self.device.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.at_ms = max(self.device.busy_until_ms, self.device.host_ms)

    def query(self) -> bool:
        return self.at_ms <= self.device.host_ms

    def elapsed_time(self, end_event: Any) -> float:
        return float(end_event.at_ms - self.at_ms)


def waited(meter: IdleMeter, device: Device, ms: float) -> None:
    meter.asked()
    device.host_ms += ms
    meter.given(int(ms * MS))


@pytest.mark.parametrize(("work_ms", "hidden_ms"), [(0, 0), (4, 4), (10, 10), (50, 10)])
def test_what_the_device_spends_at_work_is_hidden(work_ms: float, hidden_ms: float) -> None:
    device = Device()
    meter = IdleMeter(device.event)
    device.launch(work_ms)
    waited(meter, device, 10)
    device.host_ms += 100
    waited(meter, device, 0)
    assert (meter.hidden_ns, meter.timed_ns) == (hidden_ms * MS, 10 * MS)


def test_nothing_is_known_before_the_device_is_there() -> None:
    device = Device()
    meter = IdleMeter(device.event)
    device.launch(1000)
    for _ in range(200):
        waited(meter, device, 1)
    assert meter.timed_ns == 0
    device.host_ms += 2000
    waited(meter, device, 0)
    assert 0 < meter.timed_ns == meter.hidden_ns <= 200 * MS


def test_a_broken_device_is_left_alone() -> None:
    device = Device()
    meter = IdleMeter(device.event)
    device.broken = True
    waited(meter, device, 1)
    device.broken = False
    waited(meter, device, 1)
    assert (meter.broken, meter.timed_ns) == (True, 0)


def test_there_is_none_without_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert idle_meter.idle_meter() is None
