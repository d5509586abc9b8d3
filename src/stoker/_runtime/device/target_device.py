"""Finds the device that the argument ``device`` means, or says why it cannot be had."""

from __future__ import annotations

import os
from typing import Any

import torch

from stoker._runtime.device.accelerator import available_accelerator, built_accelerator, current_device_index
from stoker._runtime.device.device_link import DeviceLink
from stoker.errors import DeviceError, coded

AUTO = "auto"


def target_device(wanted: Any) -> torch.device | None:
    """The device with its number; None for the CPU. Called at ``iter()``: it may be the first use of the device.

    "auto" is the accelerator that torch has, or the CPU. A device without a number is the current one.
    """
    if wanted is None:
        return None
    if wanted == AUTO:
        found = available_accelerator()
        if found is None:
            return None
        wanted = found
    try:
        device = torch.device(wanted)
    except (RuntimeError, TypeError) as error:
        text = str(error).partition("\n")[0]
        raise DeviceError(f"device={wanted!r} is no device of this torch: {text}") from None
    if device.type == "cpu":
        return None
    _refuse_forked(device)
    present = built_accelerator()
    if present is None or present.type != device.type:
        has = "no accelerator" if present is None else repr(present.type)
        raise DeviceError(
            f"device={str(device)!r} is not there: torch {torch.__version__} has {has} here. "
            'device="auto" takes the accelerator that there is, or the CPU'
        )
    count = torch.accelerator.device_count()
    given: int | None = device.index
    index = current_device_index() if given is None and count else given
    if not count or index is None or index >= count:
        raise DeviceError(
            f"device={str(device)!r} is not there: this process sees {count} devices of the type {device.type!r}. "
            "A variable such as CUDA_VISIBLE_DEVICES may hide others"
        )
    return torch.device(device.type, index)


def link_for(links: dict[torch.device, DeviceLink], wanted: Any, name: str) -> DeviceLink | None:
    """The loader's link to the device that ``wanted`` means, made at its first use; None for the CPU."""
    device = target_device(wanted)
    if device is None:
        return None
    link = links.get(device)
    if link is None:
        link = links[device] = DeviceLink(device, name)
    elif link.owner_pid != os.getpid():
        raise _forked(device)
    return link


def _refuse_forked(device: torch.device) -> None:
    module: Any = getattr(torch, device.type, None)
    is_in_bad_fork = getattr(module, "_is_in_bad_fork", None)
    if is_in_bad_fork is not None and is_in_bad_fork():
        raise _forked(device)


def _forked(device: torch.device) -> DeviceError:
    error = DeviceError(
        f"this process ({os.getpid()}) was forked from one that uses {device.type}, and cannot use it: start it with the start "
        "method 'spawn', or iterate over a loader without device="
    )
    return coded(error, "STK312")
