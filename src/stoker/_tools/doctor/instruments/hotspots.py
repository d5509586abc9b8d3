"""Finds the functions that take a dataset's time, and the user's lines that lead there.

The interpreter reports every call (``sys.setprofile``). Time belongs to the first function of a library on the way down: what
happens inside PIL is PIL's. Libraries that only pass on (transforms, torch.utils.data) are seen through. What is left is
Python code of the user's own, with the operators of arrays in it, which are no calls.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

from stoker._tools.doctor.facts.speed import HotFunction

_SEEN_THROUGH = (
    "torch.utils.data",
    "torch.nn",
    "torchvision",
    "albumentations",
    "albucore",
    "monai",
    "timm",
    "datasets",
)
"""Packages that call what does the work, or are called by torch to do so."""

_LEAST = 0.01
_MOST = 5
"""Smaller shares are not told."""

Key = tuple[str, str, bool]
"""Function, line of the user's, and whether the function is the user's own."""


def hotspots(
    function: Callable[[], object], brief: Callable[[], object] | None = None
) -> tuple[HotFunction, ...]:
    """Runs it once, on this thread. Shares are of wall time, and of what the profile itself takes in code of many small calls.

    ``brief`` does some of the same. It is run too when Python code of the user's own takes most, to see which line does.
    """
    profile = _TimeOwners()
    before = sys.getprofile()
    began = time.perf_counter()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(before)
    total = max(time.perf_counter() - began, 1e-9)
    ranked = sorted(profile.spent_s.items(), key=lambda each: -each[1])
    found = [
        HotFunction(name, caller, spent / total, own)
        for (name, caller, own), spent in ranked[:_MOST]
        if spent / total >= _LEAST
    ]
    if brief is not None and found and found[0].own:
        code = profile.codes[found[0].function, found[0].caller]
        found[0] = replace(found[0], caller=_heaviest_line(brief, code) or found[0].caller)
    return tuple(found)


def _heaviest_line(function: Callable[[], object], code: CodeType) -> str:
    """The line of one function's code on which most time passes, with what it calls; "" when it was not run."""
    spent_s: dict[int, float] = defaultdict(float)
    at, since = 0, time.perf_counter()

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal at, since
        now = time.perf_counter()
        spent_s[at] += now - since
        at, since = frame.f_lineno if event == "line" else 0, now
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        return line if frame.f_code is code else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        function()
    finally:
        sys.settrace(before)
    spent_s.pop(0, None)
    if not spent_s:
        return ""
    return f"{os.path.basename(code.co_filename)}:{max(spent_s, key=lambda each: spent_s[each])}"


class _TimeOwners:
    """Keeps a stack of who owns the time that passes. Inside a library only its depth is counted."""

    def __init__(self) -> None:
        self.spent_s: dict[Key, float] = defaultdict(float)
        self._owners: list[Key | None] = []
        self._inside = 0
        self._last = time.perf_counter()
        self._kinds: dict[Any, str] = {}
        self.codes: dict[tuple[str, str], CodeType] = {}
        """Of the user's functions, by name and place."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._inside:
            self._inside += 1 if event in ("call", "c_call") else -1
            if self._inside:
                return
            self._charge()
            self._owners.pop()
        elif event == "call":
            self._charge()
            self._entered(frame)
        elif event == "c_call":
            self._charge()
            ours = self._kind(frame) == "ours"
            self._owners.append(None if ours else (_builtin_name(argument), self._line(frame), False))
            self._inside = 1
        else:
            self._charge()
            if self._owners:
                self._owners.pop()

    def _entered(self, frame: FrameType) -> None:
        kind = self._kind(frame)
        module = frame.f_globals.get("__name__", "")
        name = frame.f_code.co_qualname
        if kind == "ours":
            self._owners.append(None)
        elif kind == "library":
            self._owners.append((f"{module}.{name}", self._line(frame.f_back), False))
            self._inside = 1
        elif kind == "user":
            site = f"{_file(frame)}:{frame.f_code.co_firstlineno}"
            self.codes[name, site] = frame.f_code
            self._owners.append((name, site, True))
        else:
            self._owners.append((f"{module}.{name}", self._line(frame.f_back), False))

    def _charge(self) -> None:
        now = time.perf_counter()
        owner = self._owners[-1] if self._owners else None
        if owner is not None:
            self.spent_s[owner] += now - self._last
        self._last = now

    def _line(self, frame: FrameType | None) -> str:
        """The nearest line of the user's, outwards."""
        while frame is not None:
            if self._kind(frame) == "user":
                return f"{_file(frame)}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _kind(self, frame: FrameType) -> str:
        code = frame.f_code
        known = self._kinds.get(code)
        if known is None:
            known = self._kinds[code] = _kind(code.co_filename, frame.f_globals.get("__name__", ""))
        return known


_LIBRARIES = tuple(
    {os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def _kind(file: str, module: str) -> str:
    if module.startswith("stoker._tools.doctor"):
        return "ours"
    if any(module == name or module.startswith(name + ".") for name in _SEEN_THROUGH):
        return "through"
    if file.startswith("<frozen") or file.startswith(_LIBRARIES):
        return "library"
    return "user"


def _file(frame: FrameType) -> str:
    return os.path.basename(frame.f_code.co_filename)


def _module_of(function: Any, name: str) -> str | None:
    """cv2's functions do not know where they are from."""
    modules = (module for module in ("cv2", "PIL.Image", "numpy", "torch") if module in sys.modules)
    return next((module for module in modules if getattr(sys.modules[module], name, None) is function), None)


def _builtin_name(function: Any) -> str:
    name = str(getattr(function, "__qualname__", None) or getattr(function, "__name__", "?"))
    module = getattr(function, "__module__", None) or _module_of(function, name)
    held = getattr(function, "__self__", None)
    if module is None and held is not None and not isinstance(held, type) and type(held).__name__ != "module":
        module = type(held).__module__
    full = name if module in (None, "builtins") else f"{module}.{name}"
    return full.replace("torch._VariableFunctionsClass.", "torch.").replace(
        "torch._C._TensorBase.", "torch.Tensor."
    )
