"""Says in one line why something could not be tried."""

from __future__ import annotations

from stoker._record.finding import cut
from stoker._tools.sandbox.target import text_of

_LONGEST = 300
_WRAPPED = "Original Traceback"


class TargetRefused(Exception):
    """Ours: its text says it all."""


def failure_of(error: BaseException) -> str:
    """The exception's kind and what it says. Of one that a worker raised, the worker's."""
    text = text_of(error).strip()
    lines = [each.strip() for each in text.splitlines() if each.strip()]
    if not lines:
        return type(error).__name__
    if isinstance(error, TargetRefused):
        said = lines[0]
    elif _WRAPPED in text:
        said = lines[-1]
    else:
        said = f"{type(error).__name__}: {lines[0]}"
    return cut(said, _LONGEST)
