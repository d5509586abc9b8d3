"""Runs the tests of a device, and turns what they measured into a table and findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from stoker._record.finding import Finding, duration, size
from stoker._runtime.device.target_device import target_device
from stoker._tools.doctor.device_test import batches, measures
from stoker.errors import DeviceError

BATCHES = 10_000
_LITTLE_OVERLAP = 0.5
_SLOW_REGISTERED = 0.8
"""Registered memory should be about as fast as pinned memory."""

Progress = Callable[[str, float], None]


class DeviceReport(NamedTuple):
    """The results: lines of a table (name, value), and findings."""

    device: str
    rows: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]


def examine_device(wanted: str, count: int = BATCHES, progress: Progress | None = None) -> DeviceReport:
    """Try registration, bandwidth, overlap, and so many batches. Raises DeviceError if the device is not there."""
    tell = progress or (lambda name, done: None)
    device = target_device(wanted)
    if device is None:
        raise DeviceError(f"device={wanted!r} is the CPU: there is no way to it to be tested")
    tell("registering memory", 0.0)
    block = measures.SharedBlock(device, measures.BLOCK_BYTES)
    try:
        tell("bandwidth", 0.02)
        speed = measures.bandwidth(device, block)
        tell("overlap", 0.05)
        both = measures.overlap(device, block)
    finally:
        block.close()
    result = batches.bring(device, count, lambda seen: tell("batches", 0.1 + 0.9 * seen / count))
    return DeviceReport(
        str(device),
        tuple(_rows(block.registration, speed, both, result)),
        tuple(_findings(block.registration, speed, both, result)),
    )


def _rows(
    registration: measures.Registration, speed: measures.Bandwidth, both: measures.Overlap, result: batches.BatchResult
) -> list[tuple[str, str]]:  # fmt: skip
    block = size(measures.BLOCK_BYTES)
    return [
        ("torch", torch.__version__),
        ("registering", registration.error or f"{block} in {duration(registration.register_s)}"),
        ("from pageable memory", _speed(speed.pageable)),
        ("from pinned memory", _speed(speed.pinned)),
        ("from registered memory", _speed(speed.registered)),
        (
            "overlap",
            f"{both.hidden:.0%}: copy {duration(both.copy_s)}, computing {duration(both.compute_s)}, both {duration(both.both_s)}",
        ),
        ("batches", f"{result.batches:,} in {result.epochs} epochs, {result.left} left early, {result.kills} workers killed"),
        ("wrong batches", f"{result.wrong:,}"),
        ("copies", f"{result.facts['copies']:,}, {size(result.facts['copied_bytes'])}, {result.facts['memory']} memory"),
        ("registrations", f"{result.registrations} made, {result.leaked} left after close()"),
    ]  # fmt: skip


def _findings(
    registration: measures.Registration, speed: measures.Bandwidth, both: measures.Overlap, result: batches.BatchResult
) -> list[Finding]:  # fmt: skip
    found: list[Finding] = []
    if result.failure:
        found.append(
            Finding(
                "STK901",
                "high",
                f"batch {result.batches + 1} could not be brought to the device: {result.failure}",
                "Do not use device= here. Please report this table and the error.",
            )
        )
    if result.wrong or result.leaked:
        found.append(
            Finding(
                "STK901",
                "high",
                f"{result.wrong} of {result.batches} batches arrived with wrong bytes; {result.leaked} registrations were left",
                "Do not use device= here. Please report this table: it is a bug in stoker.",
            )
        )
    if registration.error:
        found.append(
            Finding(
                "STK709",
                "low",
                f"memory cannot be registered with the driver: {registration.error}",
                "Batches go through torch's pinned memory, on a thread. Containers need the driver's IPC_LOCK; WSL refuses it.",
            )
        )
    if speed.pinned is None:
        found.append(
            Finding(
                "STK709",
                "moderate",
                "torch cannot pin memory here: every copy goes from pageable memory",
                "Raise the limit on locked memory (ulimit -l), or give the container IPC_LOCK.",
            )
        )
    if speed.pinned and speed.registered and speed.registered < _SLOW_REGISTERED * speed.pinned:
        found.append(
            Finding(
                "STK709",
                "low",
                f"copies from registered memory run at {speed.registered / speed.pinned:.0%} of the speed of pinned memory",
                "The memory may lie on another NUMA node: start the process on the node of the device (numactl).",
            )
        )
    if both.hidden < _LITTLE_OVERLAP:
        found.append(
            Finding(
                "STK708",
                "low",
                f"only {both.hidden:.0%} of a copy is hidden behind computing",
                "The device has no free copy engine, or its driver runs streams one after the other.",
            )
        )
    return found


def _speed(bytes_s: float | None) -> str:
    return "none" if bytes_s is None else f"{bytes_s / 1e9:.3g} GB/s"
