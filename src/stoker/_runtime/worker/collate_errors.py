"""Says in errors which samples they are about. The error of a failed collation gets the key, the difference and the indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from stoker.errors import SampleStopIteration, coded

_SHOWN = 4
Path = tuple[Any, ...]
Odd = tuple[Path, str, list[int]]


def explain_collation(error: BaseException, samples: Sequence[Any], indices: Sequence[Any] | None) -> None:
    """Append the difference between these samples to the text of the error. Changes the error in place; never raises."""
    try:
        found = _odd_one(samples, ())
        text = _described(found, samples, indices) if found else ""
    except Exception:  # a sample's own code ran: its repr, its length
        return
    if not found:
        return
    first = str(error.args[0]) if error.args else ""
    error.args = (f"{first}\n{text}" if first else text, *error.args[1:])
    coded(error, _code(found[1]))


def _code(what: str) -> str:
    """Return the code of the docs page about this difference."""
    if what.startswith("is None"):
        return "STK402"
    return "STK401" if "shapes" in what or "lengths" in what else "STK403"


def _described(found: Odd, samples: Sequence[Any], indices: Sequence[Any] | None) -> str:
    path, what, rows = found
    lines = ["sample" + "".join(f"[{key!r}]" for key in path) + f": {what}"]
    for row in rows[:_SHOWN]:
        place = (
            f"dataset index {indices[row]}" if indices is not None and row < len(indices) else f"row {row}"
        )
        lines.append(f"  {place}: {_show(_follow(samples[row], path))}")
    return "\n".join(lines)


def _odd_one(values: Sequence[Any], path: Path) -> Odd | None:
    """Return the first difference between samples: (path, description, rows to show). None if there is none."""
    first = values[0]
    for row, value in enumerate(values):
        if value is None:
            whole = " (set on_bad_sample='skip' or 'replace' to leave out such samples)" if not path else ""
            return path, f"is None{whole}", [row]
    kinds = [row for row, value in enumerate(values) if _kind(value) != _kind(first)]
    if kinds:
        return path, "samples are of different types", [0, *kinds]
    if isinstance(first, torch.Tensor | np.ndarray):
        shapes = [row for row, value in enumerate(values) if tuple(value.shape) != tuple(first.shape)]
        return (path, "samples have different shapes", [0, *shapes]) if shapes else None
    if isinstance(first, Mapping):
        for row, value in enumerate(values):
            missing = [key for key in first if key not in value]
            if missing:
                return path, f"key {missing[0]!r} is missing", [row]
        for key in first:
            found = _odd_one([value[key] for value in values], (*path, key))
            if found:
                return found
    elif isinstance(first, Sequence) and not isinstance(first, str | bytes):
        lengths = [row for row, value in enumerate(values) if len(value) != len(first)]
        if lengths:
            return path, "samples have different lengths", [0, *lengths]
        for place in range(len(first)):
            found = _odd_one([value[place] for value in values], (*path, place))
            if found:
                return found
    return None


def _kind(value: Any) -> str:
    if isinstance(value, bool | int | float):
        return "number"
    return type(value).__name__


def _follow(sample: Any, path: Path) -> Any:
    """Return the value at a path, or the last value that could be reached."""
    value = sample
    for key in path:
        try:
            value = value[key]
        except Exception:
            return value
    return value


def _show(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"tensor of shape {tuple(value.shape)}, {value.dtype}"
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}, {value.dtype}"
    text = repr(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        text = f"length {len(value)}, {text}"
    return f"{type(value).__name__} {text[:60]}"


def silent_end(index: Any) -> SampleStopIteration:
    return SampleStopIteration(
        f"the dataset raised StopIteration for index {index!r}, which would have ended the epoch silently; "
        "raise IndexError or another exception instead"
    )


def note_index(error: BaseException, index: Any) -> None:
    error.add_note(f"stoker: while fetching dataset index {_short(index)}")


def note_indices(error: BaseException, indices: Any) -> None:
    """Note on an error which batch it belongs to, when no single row is to blame."""
    listed = list(indices)[:9] if hasattr(indices, "__iter__") else [indices]
    shown = ", ".join(_short(index) for index in listed[:8])
    more = f", … ({len(indices)} in all)" if len(listed) > 8 else ""
    error.add_note(f"stoker: in the batch of dataset indices [{shown}{more}]")


def _short(index: Any) -> str:
    text = repr(index)
    return text if len(text) <= 80 else f"{text[:77]}..."
