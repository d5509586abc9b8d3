"""Reads and bounds the numbers among the arguments of ``DataLoader``, and shortens a refused value for its message.

Values of the wrong type that torch refuses itself pass: its constructor comes next. This module imports the standard library only,
and any module may import it.
"""

from __future__ import annotations

import math
import operator
import re
import reprlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

MOST_WORKERS = 4095
"""The number of workers that one loader can have: its status page has a row for each."""
MOST_TIMEOUT_S = 9_223_372_036
"""The longest time that timers of the operating system take: 292 years."""
MOST_BYTES = sys.maxsize
_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80


def shown(value: Any) -> str:
    """A value that is refused, in at most about 80 characters."""
    if isinstance(value, int) and not -(1 << 64) < value < 1 << 64:
        return f"a {'negative ' if value < 0 else ''}number with {value.bit_length()} bits"
    try:
        return _short.repr(value)
    except Exception:  # a number in it has too many digits
        return f"a {type(value).__name__}"


def require_worker_count(num_workers: Any) -> None:
    """Raises TypeError for a number that is not whole, and ValueError for more than a machine has room for."""
    count: int | None
    try:
        count = operator.index(num_workers)
    except TypeError:
        count = _whole(num_workers)
    if count is not None and count > MOST_WORKERS:
        raise ValueError(
            f"num_workers should be at most {MOST_WORKERS}, but got num_workers={shown(num_workers)}"
        )


def _whole(num_workers: Any) -> int | None:
    """A number of another type, such as 2.0, as an int; None for what is no number."""
    try:
        float(num_workers)
    except OverflowError:
        pass
    except Exception:
        return None
    try:
        count = int(num_workers)
        whole = bool(count == num_workers)
    except (OverflowError, ValueError):  # infinite, or no number
        whole = False
    if not whole:
        raise TypeError(
            f'num_workers should be an int from 0 to {MOST_WORKERS} or "auto", but got num_workers={shown(num_workers)}'
        )
    return count


def require_batch_size(batch_size: Any) -> None:
    """Raises ValueError for a number that no list can have as its length."""
    if isinstance(batch_size, int) and not -sys.maxsize <= batch_size <= sys.maxsize:
        raise ValueError(
            f"batch_size should be a positive integer value up to {sys.maxsize}, but got batch_size={shown(batch_size)}"
        )


def require_timeout(timeout: Any) -> None:
    """Raises ValueError for a time that no timer can wait for."""
    try:
        seconds = float(timeout)
    except OverflowError:
        seconds = math.inf
    except Exception:
        return
    if not seconds <= MOST_TIMEOUT_S:  # nor for one that is not a number
        raise ValueError(
            f"timeout should be from 0 to {MOST_TIMEOUT_S} seconds, and 0 waits without end, but got timeout={shown(timeout)}"
        )


def require_prefetch_factor(prefetch_factor: Any) -> None:
    """Raises ValueError for an infinite number, and for what is not a number."""
    if isinstance(prefetch_factor, float) and not math.isfinite(prefetch_factor):
        raise ValueError(
            f"prefetch_factor should be a non-negative int or None, but got prefetch_factor={shown(prefetch_factor)}"
        )


REQUIREMENTS: Mapping[str, Callable[[Any], None]] = {
    "num_workers": require_worker_count,
    "timeout": require_timeout,
    "prefetch_factor": require_prefetch_factor,
}
"""Checks of torch's own arguments, by the name of the attribute that they are set to."""


def parse_bytes(value: int | str, name: str = "memory_budget") -> int:
    """Bytes from a number or a text such as "2GiB" or "500 MB". ``name`` is the argument, for errors."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(
            f"{name} should be a number of bytes or a text like '2GiB', but got {type(value).__name__}"
        )
    number: float = 0
    if isinstance(value, int):
        number = value
    else:
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", value.lower())
        if found is None:
            raise ValueError(
                f"{name} should be a number of bytes or a text like '2GiB', but got {shown(value)}"
            )
        number = float(found[1]) * _UNITS[found[2] or ""]
    if number > MOST_BYTES:
        raise ValueError(f"{name} should be at most {MOST_BYTES} bytes, but got {shown(value)}")
    if int(number) <= 0:
        raise ValueError(f"{name} should be positive, but got {shown(value)}")
    return int(number)
