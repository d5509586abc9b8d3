"""Keeps Dynamo, the tracer of ``torch.compile``, out of the loader. It leaves torch's own loader alone by its file name.

A loader may be iterated inside a compiled function. Its code cannot be traced, and tracing it would gain nothing. Marked functions
run as they are, with all that they call. The marks cost nothing elsewhere, and do not import Dynamo. Once it is loaded, it is told
to leave all our files alone: finalizers of batches and loaders run in compiled functions, too.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any, TypeVar

import torch

_Class = TypeVar("_Class", bound=type)
_frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)


def outside_compile(cls: _Class) -> _Class:
    """Mark all methods that a class defines."""
    for member in vars(cls).values():
        for function in (member, getattr(member, "fget", None), getattr(member, "__func__", None)):
            if isinstance(function, FunctionType):
                _mark(function)
    return cls


def leave_files_alone() -> None:
    """Called at every ``iter()``: let Dynamo skip our files, if it is loaded and was not told before."""
    global _excluded
    rules: Any = sys.modules.get("torch._dynamo.trace_rules")
    if rules is not None and not _excluded:
        _excluded = True
        try:
            rules.add("stoker")
        except Exception:  # another version of torch: what is not marked is compiled by itself, if it can be
            return


_excluded = False


def _mark(function: Any) -> None:
    """As ``torch.compiler.disable`` marks what it wraps, without a wrapper: a call is neither traced nor compiled."""
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = "a loader is not traced"
    try:
        skip = _frames._FrameAction.SKIP
        _frames.set_code_exec_strategy(function.__code__, _frames._FrameExecStrategy(skip, skip))
    except AttributeError:  # another version of torch: the function is compiled by itself, if it can be
        return
