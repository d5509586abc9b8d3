"""Reads JSON that another program, or another user, may have written: a value that is nested too deeply is refused.

Python's reader raises RecursionError for a thousand levels. Fewer get past it, and fail later, in code that copies or prints them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

MOST_DEPTH = 100


def loads(text: str | bytes, decode: Callable[[Any], Any] = json.loads) -> Any:
    """What ``decode`` makes of it. Raises ValueError alone. Any thread."""
    try:
        found = decode(text)
    except RecursionError:
        raise _too_deep() from None
    require_flat(found)
    return found


def require_flat(value: Any) -> None:
    """Raises ValueError for lists and dicts in more than MOST_DEPTH levels."""
    level = [value] if type(value) in (dict, list) else []
    for _ in range(MOST_DEPTH + 1):
        if not level:
            return
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"it is nested in more than {MOST_DEPTH} levels")
