"""The tests' side of the fake accelerator: load it, set how it behaves, make it fail, read what it counted."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any, Literal, NamedTuple

import torch
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)

from tests.fake_device.build import library

NAME = "fakeaccel"

Order = Literal["prompt", "late", "others_first", "random"]
_ORDERS: tuple[Order, ...] = ("prompt", "late", "others_first", "random")

_ERRORS = {
    0: "success",
    1: "invalid argument",
    304: "operating system call failed (injected)",
    600: "copies from this memory are still in flight",
    712: "part or all of the memory is already registered",
    713: "the memory is not registered",
    719: "the device is lost, or belongs to the parent of this forked process",
}


class Counters(NamedTuple):
    """What the device has done, and what it holds. The order is that of ``Counters`` in engine.h."""

    copies_to_device: int
    bytes_to_device: int
    copies_to_host: int
    bytes_to_host: int
    copies_on_device: int
    pageable_copies: int
    live_blocks: int
    live_bytes: int
    deferred_blocks: int
    reserved_bytes: int
    reserved_peak_bytes: int
    pinned_blocks: int
    pinned_bytes: int
    registrations: int
    registered_bytes: int
    registrations_made: int
    registrations_failed: int
    pinnings_failed: int
    allocations_failed: int
    streams: int
    events: int
    kernels: int
    in_flight: int
    engine_cpu_ns: int
    """CPU time of the device's own threads; a real device would not take it from the process."""


class FakeDevice:
    """The one fake accelerator of this process. Every method may be called on any thread."""

    def __init__(self, functions: ctypes.CDLL) -> None:
        self._functions = functions
        functions.fakeaccel_violations.restype = ctypes.c_size_t
        functions.fakeaccel_registered.restype = ctypes.c_size_t

    def order(self, order: Order, *, delay_s: float = 0.05, queries: int = 16, seed: int = 0) -> None:
        """Choose when operations run.

        ``prompt``: as soon as they may. ``late``: when something waits for them, their event was queried ``queries`` times, or
        about ``delay_s`` have passed. ``others_first``: as late, but when the host waits for a stream, all other streams first
        run as far as they can. ``random``: each wait of the host chooses between these two, by ``seed``.
        """
        self._functions.fakeaccel_order(
            _ORDERS.index(order), ctypes.c_double(delay_s), ctypes.c_int(queries), ctypes.c_uint64(seed)
        )

    def timed(self, *, bytes_per_s: float = 4e9, move_bytes: bool = True) -> None:
        """Behave as a plain device with one copy engine of this bandwidth, in real time; nothing is poisoned.

        With ``move_bytes=False`` a copy takes its time and no CPU, and moves nothing.
        """
        self._functions.fakeaccel_timed(ctypes.c_double(bytes_per_s), ctypes.c_int(move_bytes))

    def occupy(self, ms: float) -> None:
        """Queue a kernel on the current stream that takes this long and does nothing."""
        error = self._functions.fakeaccel_occupy(ctypes.c_double(ms))
        if error:
            torch.empty(1, device=NAME)  # raises the error as torch does

    def checksum(self, tensor: torch.Tensor) -> torch.Tensor:
        """A number for all bytes of a tensor, as a tensor on its device: the same there and on the CPU; asynchronous there."""
        result: torch.Tensor = torch.ops.fakeaccel.checksum(tensor)
        return result

    def register_host(self, address: int, size_bytes: int) -> int:
        """Page-lock memory, as cudaHostRegister: 0, or an error's number."""
        return int(
            self._functions.fakeaccel_host_register(ctypes.c_void_p(address), ctypes.c_size_t(size_bytes))
        )

    def unregister_host(self, address: int) -> int:
        """Give the memory at the begin of a registration back, as cudaHostUnregister: 0, or an error's number."""
        return int(self._functions.fakeaccel_host_unregister(ctypes.c_void_p(address)))

    def error_string(self, error: int) -> str:
        """What the number of an error means."""
        return _ERRORS.get(error, f"error {error}")

    def limit_memory(self, limit_bytes: int | None) -> None:
        """Let the device have this much memory; None: 8 GiB."""
        self._functions.fakeaccel_limit_memory(
            ctypes.c_int64(8 << 30 if limit_bytes is None else limit_bytes)
        )

    def fail_registrations(self, count: int | None = None) -> None:
        """Refuse the next registrations of host memory; None: all, 0: none."""
        self._functions.fakeaccel_fail_registrations(ctypes.c_int64(-1 if count is None else count))

    def fail_pinning(self, count: int | None = None) -> None:
        """Refuse the next allocations of pinned memory; None: all, 0: none."""
        self._functions.fakeaccel_fail_pinning(ctypes.c_int64(-1 if count is None else count))

    def lose(self, *, after_copies: int = 0) -> None:
        """Lose the device, now or when this many more copies have run. All pending work is dropped; each use raises."""
        self._functions.fakeaccel_lose(ctypes.c_int64(after_copies))

    def counters(self) -> Counters:
        """Read all counters."""
        values = (ctypes.c_int64 * len(Counters._fields))()
        self._functions.fakeaccel_counters(values)
        return Counters(*values)

    def registered(self) -> list[tuple[int, int]]:
        """Address and size of all host memory that is registered."""
        count = self._functions.fakeaccel_registered(None, ctypes.c_size_t(0))
        values = (ctypes.c_uint64 * (2 * count))()
        found = min(count, self._functions.fakeaccel_registered(values, ctypes.c_size_t(count)))
        return [(values[2 * i], values[2 * i + 1]) for i in range(found)]

    def violations(self) -> list[str]:
        """Rules that were broken, each in a sentence. Looks at all registered memory before."""
        self._functions.fakeaccel_audit()
        size = self._functions.fakeaccel_violations(None, ctypes.c_size_t(0))
        text = ctypes.create_string_buffer(size)
        self._functions.fakeaccel_violations(text, ctypes.c_size_t(size))
        return text.raw.decode().splitlines()

    def is_in_forked_child(self) -> bool:
        """Whether this process was forked from the one that loaded the device."""
        return bool(self._functions.fakeaccel_forked())


_loaded: FakeDevice | None = None


def load() -> FakeDevice:
    """The fake accelerator, compiled and registered with torch; the same object on every call in this process."""
    global _loaded
    if _loaded is None:
        path = library()
        functions = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        fake = FakeDevice(functions)
        assert not fake.is_in_forked_child()  # from here on, children of this process are
        rename_privateuse1_backend(NAME)
        torch._register_device_module(NAME, _device_module(fake))
        generate_methods_for_privateuse1_backend(for_storage=False)
        torch.empty(0).pin_memory()  # initialises the device: before, torch takes no memory for pinned
        _loaded = fake
    return _loaded


def _device_module(fake: FakeDevice) -> ModuleType:
    """What torch looks for under ``torch.fakeaccel``: enough for seeding, forking and device contexts."""
    module: Any = ModuleType(f"torch.{NAME}")
    module.is_available = lambda: True
    module.is_initialized = lambda: True
    module.device_count = lambda: 2
    module.current_device = torch.accelerator.current_device_index
    module.set_device = torch.accelerator.set_device_index
    module.current_stream = torch.accelerator.current_stream
    module.synchronize = torch.accelerator.synchronize
    module._is_in_bad_fork = fake.is_in_forked_child
    module.manual_seed_all = lambda seed: None
    module.get_rng_state = lambda device=NAME: torch.empty(0, dtype=torch.uint8)
    module.set_rng_state = lambda new_state, device=NAME: None
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    return module
