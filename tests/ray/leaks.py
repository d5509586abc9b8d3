"""Finds what a loader on Ray has left behind: our threads and descriptors here, our processes anywhere on this machine."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Collection

import psutil

PATIENCE_S = 5.0


def left_since(before: Collection[str]) -> list[str]:
    """Return what is left after a grace period, in words. What was there before is another test's, which failed."""
    deadline = time.monotonic() + PATIENCE_S
    while left := [each for each in ours() if each not in before]:
        if time.monotonic() > deadline:
            break
        gc.collect()
        time.sleep(0.02)
    return left


def ours() -> list[str]:
    """Return what there is now, in words that differ for each."""
    return [*_threads(), *_descriptors(), *_processes()]


def _threads() -> list[str]:
    return [
        f"thread {each.name} ({each.ident})"
        for each in threading.enumerate()
        if each.name.startswith("stoker")
    ]


def _descriptors() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            link, inode = os.readlink(f"/proc/self/fd/{fd}"), os.stat(f"/proc/self/fd/{fd}").st_ino
        except FileNotFoundError:
            continue
        if "stoker-" in link:
            found.append(f"descriptor {fd} -> {link} ({inode})")
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
