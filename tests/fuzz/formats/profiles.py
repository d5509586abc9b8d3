"""Saved profiles: the file that ``num_workers="auto"`` finds by dataset, batch size and machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest import mock

from stoker._record.dataset_identity import machine_key
from stoker._runtime.autoscale import profile_files
from stoker._runtime.autoscale.profile import Profile
from stoker._runtime.simulation.setting import Setting
from tests.fuzz import mutation
from tests.fuzz.format import Format

_KEY = "0" * 32


def _seeds() -> list[bytes]:
    best = Profile(
        _KEY, 64, machine_key(), Setting(workers=3, prefetch=4), "compute", "2026-11-16 16:40 UTC", 12.5e6, 12_000_000,
        33e6, 4.0, 1, "Three of them make a batch every 12.5 ms.", "Pictures", Setting(workers=4),
    )  # fmt: skip
    threads = Profile(_KEY, 64, machine_key(), Setting(workers=8, executor="thread", threads=4))
    return [json.dumps(each.as_dict()).encode() for each in (best, threads)]


def _find(data: bytes, folder: Path) -> None:
    """``find_key`` never raises, so what it suppresses is looked for below it."""
    path = folder / profile_files._name(_KEY, 64, machine_key(), 1)
    path.write_bytes(data)
    with mock.patch.dict(os.environ, {profile_files.VARIABLE: str(folder)}):
        found = profile_files._found(_KEY, 64, machine_key(), 1)
    if found is not None:
        json.dumps(found.as_dict())
        found.setting.arguments()


FORMATS = (Format("profile", _seeds, _find, (), mutation.any_json, weight=4),)
