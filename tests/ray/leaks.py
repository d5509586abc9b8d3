"""Finds what a loader on Ray has left behind: our threads and descriptors here, our processes anywhere on this machine."""

from __future__ import annotations

import gc
import os
import threading
import time

import psutil

PATIENCE_S = 5.0


def ours_left() -> list[str]:
    """Return what is left after a grace period, in words."""
    deadline = time.monotonic() + PATIENCE_S
    while left := [*_threads(), *_descriptors(), *_processes()]:
        if time.monotonic() > deadline:
            break
        gc.collect()
        time.sleep(0.02)
    return left


def _threads() -> list[str]:
    return [f"thread {each.name}" for each in threading.enumerate() if each.name.startswith("stoker")]


def _descriptors() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if "stoker-" in link:
            found.append(f"descriptor {fd} -> {link}")
    return found


def _processes() -> list[str]:
    """Relays, node hosts and workers. A cluster in another test process may have some, so only those of our session count."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                "node_host" in " ".join(process.cmdline())
                and process.environ().get("STOKER_TEST") == _SESSION
            ):
                found.append(f"process {process.pid}")
        except psutil.Error:
            continue
    return found


_SESSION = str(os.getpid())
os.environ["STOKER_TEST"] = _SESSION
