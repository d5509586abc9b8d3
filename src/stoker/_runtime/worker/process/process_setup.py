"""Prepares a worker process before user code runs: signals, native thread pools, lifeline, name."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
from contextlib import suppress
from typing import Any

import torch

from stoker._runtime.protocol.default_device import default_device, default_devices
from stoker._runtime.worker.process.native_pools import ThreadpoolController


def reset_signals() -> None:
    """Undo signal handlers of the training script. The parent handles Ctrl-C: one traceback, not one per worker."""
    for number in signal.valid_signals():
        try:
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The parent's thread may block some signals, and stoker blocked SIGINT.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.set_wakeup_fd(-1)


def close_on_exec() -> None:
    """Keep our descriptors from programs that the dataset starts: under spawn and forkserver they arrive inheritable.

    A program in the background would hold the arena and the sockets after ``close()``. Called before any user code runs, so
    all but standard input and output are ours.
    """
    with suppress(OSError):  # there is no /proc: macOS
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2:
                with suppress(OSError):  # the one that listed the directory
                    os.set_inheritable(int(name), False)


_ADAPTS_TO_BYTES = 31 << 20
"""A block just below the largest to which glibc adapts by itself (32 MiB, with its own header)."""


def keep_heap() -> None:
    """Let the C library keep the memory that a batch's samples freed, because the next batch needs as much again.

    glibc gives the free end of its heap back when that is twice as long as the largest block that was mapped and freed. Without
    such a block, every sample of the next batch faults its pages in again: half of the rate for samples of 150 kB. This block
    is mapped and freed without a page of it being touched. What is kept is at most 62 MiB, and idle workers give it back
    (``worker/trim.py``). Thresholds that the user set with ``MALLOC_TRIM_THRESHOLD_`` and the like stay.
    """
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.free.restype, libc.free.argtypes = None, (ctypes.c_void_p,)
    libc.free(libc.malloc(_ADAPTS_TO_BYTES))


def single_thread() -> None:
    """Set every native pool to one thread: the workers are the parallelism."""
    torch.set_num_threads(1)
    cv2: Any = sys.modules.get("cv2")
    if cv2 is not None and hasattr(cv2, "setNumThreads"):
        cv2.setNumThreads(0)
    for library in native_pools(len(sys.modules)).lib_controllers:
        if not _limit_forked_openblas(library):
            library.set_num_threads(1)


def _limit_forked_openblas(library: Any) -> bool:
    """Set the number of threads of an OpenBLAS that lost its threads in a fork; False where it is anything else.

    Its own function would first start the threads again. They spin for 15 ms, beside the first batches. The variable is what
    that function sets in the end, and what every BLAS call reads.
    """
    if library.internal_api != "openblas":
        return False
    try:
        running = ctypes.c_int.in_dll(library.dynlib, "blas_server_avail")
        threads = ctypes.c_int.in_dll(library.dynlib, "blas_cpu_number")
    except ValueError:  # built with OpenMP, or without these names
        return False
    if running.value or threads.value < 1:
        return False
    threads.value = 1
    return True


@functools.lru_cache(maxsize=1)
def native_pools(modules: int) -> Any:
    """The BLAS and OpenMP libraries in this process. Looked up before forking, so that N workers need not.

    ``modules`` is how many modules are loaded: the look-up is repeated when that changed, because a library may have come with one.
    """
    return ThreadpoolController()


def forget_default_device() -> None:
    """Make samples on the CPU, whatever default device the training script set."""
    if default_device().type == "cpu":
        return
    if len(default_devices()) == 1:  # torch cannot end the outer one of two
        torch.set_default_device(None)
    if default_device().type != "cpu":  # forked inside a ``with torch.device(...)``
        torch.device("cpu").__enter__()


def name_process(name: str) -> None:
    """Set the name of this process in process lists."""
    try:
        torch.multiprocessing._set_thread_name(f"stoker-{name}")
    except (AttributeError, RuntimeError):
        return
