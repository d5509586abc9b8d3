"""Starts worker processes under fork, spawn and forkserver."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, process, spawn
from typing import Any

_PRELOAD = ["numpy", "torch", "stoker._worker.main"]
_patching = threading.Lock()


def start(ctx: Any, target: Callable[[Any], None], boot: Any) -> Any:
    """A started ``Process`` of this context that runs ``target(boot)``."""
    child = ctx.Process(target=target, args=(boot,), daemon=True)
    method = ctx.get_start_method()
    if method == "forkserver":
        _preload()
    with _daemons_may_have_children(), _main_stays_out(method):
        child.start()
    return child


def watch(child: Any) -> int:
    """A descriptor that becomes readable when the process ends; -1 when it has ended already."""
    if not hasattr(os, "pidfd_open"):
        return os.dup(child.sentinel)
    try:
        return os.pidfd_open(child.pid)
    except ProcessLookupError:
        return -1


def _preload() -> None:
    """Have torch imported once, in the fork server, unless the user has chosen its modules or it runs already."""
    server: Any = forkserver._forkserver
    if server._forkserver_pid is None and server._preload_modules == ["__main__"]:
        server.set_forkserver_preload(list(_PRELOAD))


@contextmanager
def _daemons_may_have_children() -> Iterator[None]:
    """multiprocessing forbids it because orphans would be left; our workers end with their parent (lifeline)."""
    config: Any = process.current_process()._config  # type: ignore[attr-defined]
    daemon = config.pop("daemon", None)
    try:
        yield
    finally:
        if daemon is not None:
            config["daemon"] = daemon


@contextmanager
def _main_stays_out(method: str) -> Iterator[None]:
    """Keep a spawned worker from importing the training script: all it needs travels by value.

    The import is what breaks scripts without a ``__main__`` guard, notebooks and code read from stdin.
    """
    if method == "fork":
        yield
        return
    module: Any = spawn
    with _patching:
        original = module.get_preparation_data

        def without_main(name: str) -> dict[str, Any]:
            data: dict[str, Any] = original(name)
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
            return data

        module.get_preparation_data = without_main
        try:
            yield
        finally:
            module.get_preparation_data = original
