"""Defines the demo's record: one JSON with every act's measurements, from which summary and report are made."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

from stoker._record.readings import machine
from stoker.errors import RecordError

FORMAT = "stoker-demo"
VERSION = 1


def fresh(quick: bool) -> dict[str, Any]:
    """One without acts, of this machine, now. ``others``: the share of the CPUs that others used meanwhile."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "began_unix_ns": time.time_ns(),
        "machine": machine_facts(),
        "quick": quick,
        "interrupted": False,
        "seconds": 0.0,
        "others": None,
        "acts": {},
    }


def machine_facts() -> dict[str, Any]:
    """As a run record has them."""
    return asdict(machine.facts())


def performed(
    title: str, seconds: float, result: dict[str, Any] | None, failure: str | None
) -> dict[str, Any]:
    """An act that is over. ``result`` is None when it failed, and ``failure`` says why."""
    return {"title": title, "seconds": seconds, "result": result, "failure": failure}


def dumps(record: dict[str, Any]) -> str:
    """One line of JSON."""
    return json.dumps(record, separators=(",", ":"), default=repr)


def checked(data: Any) -> dict[str, Any]:
    """What somebody read from a file. Raises RecordError when it is no demo's record, or one of a newer version."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise RecordError(f"this is no demo's record: it has no format {FORMAT!r}")
    version = data.get("version")
    if not isinstance(version, int):
        raise RecordError("this demo's record does not say its version")
    if version > VERSION:
        raise RecordError(
            f"this demo's record has version {version}, and this stoker reads up to {VERSION}: upgrade stoker to read it"
        )
    acts = data.get("acts")
    if not isinstance(acts, dict) or not all(map(_is_performed, acts.values())):
        raise RecordError("this demo's record is damaged: its acts are not what they should be")
    seconds = data.get("seconds")
    if (
        not isinstance(data.get("machine"), dict)
        or not isinstance(seconds, int | float)
        or not 0 <= seconds < 1e9
    ):
        raise RecordError(
            "this demo's record is damaged: it does not say on what it was made, or how long it took"
        )
    return data


def _is_performed(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("title"), str)
        and isinstance(entry.get("result"), dict | None)
        and isinstance(entry.get("failure"), str | None)
    )
