"""A tuning as JSON, and back. The format has a version: other tools use it, and ``stoker tune --show`` reads it."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from stoker._host import bounded_file, bounded_json
from stoker._record.finding import Edit
from stoker._record.typed_values import wrong
from stoker._runtime.simulation.cache_forecast import CacheForecast
from stoker._runtime.simulation.point import Interval, Point
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.render.json_form import plain
from stoker._tools.tune.result import Tuning
from stoker.errors import RecordError

FORMAT = "stoker-tuning"
VERSION = 1
_NUMBERS = re.compile(r"\[\s+([-+.,eE\d\s]+?)\s+\]")
_DERIVED = ("typical_ns", "typical_cpu_ns", "off_share", "variation")
"""Values of the work that follow from its lists, for readers who do not want the lists."""


def render(tuning: Tuning) -> str:
    """One JSON document, without a newline at its end. Numbers in a row stand in one line."""
    text = json.dumps(as_json(tuning), indent=2, allow_nan=False)
    return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text)


def as_json(tuning: Tuning) -> dict[str, Any]:
    """Plain values. ``recommended`` and ``baseline`` are arguments of a DataLoader; ``settings`` has both as settings."""
    work = tuning.work
    values = {each.name: plain(getattr(tuning, each.name)) for each in fields(tuning)}
    values |= {
        "recommended": arguments(tuning.recommended),
        "baseline": arguments(tuning.baseline),
        "points": [
            {
                "arguments": arguments(each.setting),
                **plain(each),
                "setting": each.setting.as_dict(),
                "kept": each.setting == tuning.recommended,
            }
            for each in tuning.points
        ],
        "work": None
        if work is None
        else plain(work) | {name: plain(getattr(work, name)) for name in _DERIVED},
    }
    return {
        "format": FORMAT,
        "version": VERSION,
        "target": values.pop("target"),
        "batch_size": values.pop("batch_size"),
        "engine": tuning.recommended.engine,
        "recommended": values.pop("recommended"),
        "changed": tuning.changed,
        **values,
        "settings": {"recommended": tuning.recommended.as_dict(), "baseline": tuning.baseline.as_dict()},
    }


def arguments(setting: Setting) -> dict[str, Any]:
    """The arguments for a DataLoader. With workers ``prefetch_factor`` is always among them: 2 if it was left open."""
    found = setting.arguments()
    workers = found.pop("num_workers")
    if not workers:
        return {"num_workers": 0, **found}
    return {"num_workers": workers, "prefetch_factor": setting.prefetch or 2, **found}


def read(path: Path) -> Tuning:
    """Read a file that ``render`` wrote. Raises RecordError if it cannot be read, or is no tuning."""
    try:
        text = bounded_file.read(path).decode()
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path} is no tuning: it is not text") from error
    try:
        data = bounded_json.loads(text)
    except ValueError as error:
        raise RecordError(f"{path} is no tuning: {error}") from error
    try:
        return from_json(data)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from error


def from_json(data: Any) -> Tuning:
    """The tuning from the values of ``as_json``. Raises RecordError."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise RecordError(f"this is no tuning of stoker: it has no format {FORMAT!r}")
    version = data.get("version")
    if type(version) is not int:
        raise RecordError("this tuning does not say its version")
    if version > VERSION:
        raise RecordError(
            f"this tuning has version {version}, and this stoker reads up to {VERSION}: upgrade stoker to read it"
        )
    try:
        settings = data["settings"]
        values: dict[str, Any] = {
            **{each.name: data[each.name] for each in fields(Tuning) if each.name in data},
            "baseline": Setting.from_dict(settings["baseline"]),
            "recommended": Setting.from_dict(settings["recommended"]),
            "why": tuple(map(str, data["why"])),
            "warnings": tuple(map(str, data["warnings"])),
            "points": tuple(_point(each) for each in data["points"]),
            "gain": _made(Interval, data["gain"]),
            "host": _made(Host, data["host"]),
            "work": _made(Work, data["work"]),
            "demand": _made(Demand, data["demand"]),
            "edit": _made(Edit, data["edit"]),
            "cache": _made(CacheForecast, data.get("cache")),
            "cache_gain": data.get("cache_gain"),
            "edits": tuple(_made(Edit, each) for each in data["edits"]),
        }
        found = Tuning(**values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"this tuning is damaged: {type(error).__name__}: {error}") from error
    if what := wrong(found, Tuning):
        raise RecordError(f"this tuning is damaged: {what}")
    return found


def _point(data: Any) -> Point:
    values = {each.name: data[each.name] for each in fields(Point) if each.name in data}
    middle = {name: _made(Interval, data[name]) for name in ("interval_ns", "ratio")}
    return Point(**{**values, **middle, "setting": Setting.from_dict(data["setting"])})


def _made(kind: Any, data: Any) -> Any:
    """One of our dataclasses, whose lists are tuples; None for null. Unknown names are ignored."""
    if data is None:
        return None
    values = {
        each.name: tuple(data[each.name]) if isinstance(data[each.name], list) else data[each.name]
        for each in fields(kind)
        if each.name in data
    }
    return kind(**values)
