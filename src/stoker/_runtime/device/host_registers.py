"""Page-locks memory that is not torch's own, by the driver's function for it.

This table is the only part of the way to the device that knows vendors. A device type without an entry uses torch's pinned
memory instead.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import torch


class HostRegister(NamedTuple):
    """The driver's functions, with the contract of ``cudaHostRegister``: both return 0, or the number of an error."""

    register: Callable[[int, int], int]
    """Takes an address and a number of bytes. From then on copies from there are asynchronous."""
    unregister: Callable[[int], int]
    """Takes the address that was registered. No copy may be reading there."""


_PORTABLE = 1
"""cudaHostRegisterPortable: page-locked for all devices of the process."""


def _cuda_register(address: int, nbytes: int) -> int:
    code = int(torch.cuda.cudart().cudaHostRegister(address, nbytes, _PORTABLE))  # type: ignore[no-untyped-call]
    if code:
        # The runtime remembers the error, and the next kernel of the user would raise it. This one does, in their place.
        with suppress(RuntimeError):
            torch.zeros(1, device="cuda")
    return code


def _cuda_unregister(address: int) -> int:
    return int(torch.cuda.cudart().cudaHostUnregister(address))  # type: ignore[no-untyped-call]


HOST_REGISTERS: dict[str, HostRegister] = {"cuda": HostRegister(_cuda_register, _cuda_unregister)}
"""By device type. ROCm's devices are of the type "cuda", too."""
