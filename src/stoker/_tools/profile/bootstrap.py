"""Runs in the script's process before the script: waits until torch is imported.

The same happens in every Python process below the script, since what brings it here is in the environment: PYTHONPATH names the
folder ``site``. Where other processes are not followed, the environment is made the user's again at once.

Nothing here imports torch, or anything that Python has not imported anyway: a script that never loads data runs as it would
alone. When the script, or a library of its, has imported torch, the mode's part is installed: ``profile`` measures torch's
loader, ``run`` puts stoker's in its place, ``advise`` also keeps
loaders for the doctor. Whatever goes wrong with that is said on stderr in one line, and the script goes on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODE = "STOKER_MODE"
"""Environment: "profile", "run" or "advise". It stays for the processes that the script starts, unless these are not followed."""
PYTHONPATH = "STOKER_PYTHONPATH"
"""Environment: the user's PYTHONPATH, where there is one and other processes are not followed. Taken out before the script runs."""
FOLLOW = "STOKER_FOLLOW"
"""Environment: the prefix of the interpreter that other processes are followed with; without it they are left alone."""
RECORD = "STOKER_RECORD"
"""Environment: the folder into which loaders write their records. It stays."""

_PARTS = {
    "profile": ("stoker._tools.profile.torch_loader.install",),
    "run": ("stoker._tools.profile.swap", "stoker._tools.profile.torch_loader.install"),
    "advise": ("stoker._tools.profile.torch_loader.install", "stoker._tools.advise.in_script"),
}
"""By mode: modules whose ``install()`` is called, in this order, when torch is there. Loaders that ``run`` leaves to torch are
measured."""

_TORCH = ("torch", "torch.utils.data")


def begin() -> None:
    """Called once, by ``sitecustomize``: the mode is armed. Unless others are followed the environment is the user's again."""
    if FOLLOW in os.environ:
        arm(os.environ[MODE])
        return
    mode = os.environ.pop(MODE, None)
    path = os.environ.pop(PYTHONPATH, None)
    if path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = path
    if mode is not None:
        arm(mode)


def arm(mode: str) -> None:
    """Install the mode's parts as soon as torch has been imported; at once, where it has been. Once per process."""
    if any(isinstance(each, ImportWatcher) for each in sys.meta_path):
        return

    def ran(_: ModuleType) -> None:
        if not sentry.awaits(*_TORCH):
            install(mode)

    sentry = ImportWatcher(
        {**dict.fromkeys(_TORCH, ran), "multiprocessing.spawn": lambda each: follow(each, mode)}
    )
    sys.meta_path.insert(0, sentry)
    sentry.catch_up()


def install(mode: str) -> None:
    """Install the mode's parts, each for itself."""
    for name in _PARTS[mode]:
        try:
            import_module(name).install()
        except Exception as error:
            complain(
                f"{name} could not be installed, so loaders may be missing: {type(error).__name__}: {error}"
            )


def follow(spawn: ModuleType, mode: str) -> None:
    """Processes that multiprocessing spawns for the script are armed like it: ranks of ``torch.multiprocessing.spawn``, say."""
    prepare = spawn.get_preparation_data

    def get_preparation_data(name: str) -> Any:
        return {**prepare(name), "stoker": _UnpicklingHook(mode)}

    spawn.get_preparation_data = get_preparation_data  # type: ignore[attr-defined]


class _UnpicklingHook:
    """Arms the process that unpickles it, if stoker can be imported there, and is nothing else: None."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def __reduce__(self) -> Any:
        source = (
            "try:\n from stoker._tools.profile import bootstrap\nexcept ImportError:\n pass\nelse:\n"
            f" bootstrap.arm({self.mode!r})"
        )
        return exec, (source, {})


class ImportWatcher:
    """On ``sys.meta_path``: finds nothing by itself, and calls back when a module that is awaited has been run."""

    def __init__(self, awaited: dict[str, Callable[[ModuleType], None]]) -> None:
        self._awaited = awaited

    def catch_up(self) -> None:
        """Call back for what has been imported already."""
        for name in list(self._awaited):
            module = sys.modules.get(name)
            if module is not None and not getattr(module.__spec__, "_initializing", False):
                self._ran(name, module)

    def awaits(self, *names: str) -> bool:
        """Whether one of these has not been run yet."""
        return any(name in self._awaited for name in names)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders have, with a loader that tells us."""
        if name not in self._awaited:
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    self._attend(name, spec.loader)
                    return spec
        return None

    def _attend(self, name: str, loader: Any) -> None:
        run = getattr(loader, "exec_module", None)
        if run is None:
            return

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            run(module)
            self._ran(name, module)

        try:
            loader.exec_module = exec_module  # on this one object: its class stays what it is
        except AttributeError:
            complain(f"the loader of {name} cannot be attended, so loaders may be missing")

    def _ran(self, name: str, module: ModuleType) -> None:
        called = self._awaited.pop(name, None)
        if called is not None:
            called(module)


def complain(text: str) -> None:
    """One line on stderr, if there is one."""
    try:  # noqa: SIM105  # contextlib is not imported yet
        sys.stderr.write(f"stoker: {text}\n")
    except (AttributeError, OSError, ValueError):
        pass
