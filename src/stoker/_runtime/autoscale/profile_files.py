"""Profiles on disk: a tuning leaves one, ``num_workers="auto"`` picks it up for the same dataset, batch size and machine.

A folder of the user's own (``$STOKER_PROFILES``, else ``stoker/profiles`` in the user's cache) with a small JSON file for each.
Whoever can write there settles how many processes are started, so a folder or file that belongs to somebody else, or that others
may write to, is not read. Nothing in it is ever executed or unpickled.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stoker._host.local_ranks import local_ranks
from stoker._record.dataset_identity import dataset_key, machine_key
from stoker._runtime.autoscale.profile import Profile

VARIABLE = "STOKER_PROFILES"
OFF = "off"
"""As the variable's value: neither read nor written."""
_MOST = 256
"""Files that are kept: the latest."""
_MOST_BYTES = 1 << 16
_NAME = re.compile(r"[0-9a-f]{24}-[0-9]+\.json")
_log = logging.getLogger("stoker")


def find(dataset: Any, batch_size: int | None, *, ranks: int | None = None) -> Profile | None:
    """The one that was saved for this work on this machine, for so many local ranks if there is one. Never raises.

    ``ranks`` is as the environment says by default. A profile that was made for another number says so in ``Profile.ranks``.
    """
    try:
        return _found(dataset_key(dataset), batch_size, machine_key(), ranks or local_ranks(os.environ)[0])
    except Exception as error:  # a loader works without one
        _log.debug("no profile: %s: %s", type(error).__name__, error)
        return None


def find_key(dataset: str, batch_size: int | None, *, ranks: int | None = None) -> Profile | None:
    """The same by the dataset's key (``identity.dataset_key``), for whoever does not have the dataset. Never raises."""
    try:
        return _found(dataset, batch_size, machine_key(), ranks or local_ranks(os.environ)[0])
    except Exception as error:
        _log.debug("no profile: %s: %s", type(error).__name__, error)
        return None


def save(profile: Profile) -> Path:
    """Write it, in the place of one for the same work. Returns the file. Raises OSError, which says why not."""
    place = folder(os.environ)
    if place is None:
        raise OSError(f"{VARIABLE} is {OFF!r}, or there is no home folder")
    place.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    if wrong := _wrong(place.lstat(), stat.S_ISDIR):
        raise PermissionError(f"{place} {wrong}")
    path = place / _name(profile.dataset, profile.batch_size, profile.machine, profile.ranks)
    handle, fresh = tempfile.mkstemp(dir=place, prefix=".new-")  # private to the user from its first moment
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(profile.as_dict(), file, indent=1)
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh)
        raise
    _prune(place)
    return path


def folder(environ: Mapping[str, str]) -> Path | None:
    """Where profiles are; None when nobody wants any, or there is no such place."""
    given = environ.get(VARIABLE, "")
    if given:
        return None if given == OFF else Path(os.path.abspath(given))
    cache = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):  # as its specification has it: relative ones are ignored
        cache = os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache, "stoker", "profiles") if os.path.isabs(cache) else None


def _found(dataset: str, batch_size: int | None, machine: str, ranks: int) -> Profile | None:
    place = folder(os.environ)
    if place is None:
        return None
    try:
        held = place.lstat()
    except OSError:
        return None
    if wrong := _wrong(held, stat.S_ISDIR):
        _log.debug("profiles are not read: %s %s", place, wrong)
        return None
    exact = _name(dataset, batch_size, machine, ranks)
    key = exact.partition("-")[0]
    others = sorted(each.name for each in place.glob(f"{key}-*.json") if each.name != exact)
    for name in (exact, *others):
        profile = _read(place / name)
        if profile is None:
            continue
        if (profile.dataset, profile.batch_size, profile.machine) == (dataset, batch_size, machine):
            return profile
        _log.debug("a profile is left aside: %s is for something else", place / name)
    return None


def _read(path: Path) -> Profile | None:
    """None when it is not there, or nothing to rely on."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.debug("a profile is left aside: %s: %s", path, error.strerror)
        return None
    with os.fdopen(handle, "rb") as file:
        wrong = _wrong(os.fstat(handle), stat.S_ISREG)
        content = b"" if wrong else file.read(_MOST_BYTES + 1)
    try:
        if wrong:
            raise ValueError(wrong)
        if len(content) > _MOST_BYTES:
            raise ValueError("it is too large")
        return Profile.from_dict(json.loads(content))
    except (ValueError, RecursionError) as error:
        _log.debug("a profile is left aside: %s: %s", path, error)
        return None


def _wrong(held: os.stat_result, kind: Any) -> str:
    """Why a file or folder is not to be relied on, "" when it is."""
    if not kind(held.st_mode):
        return "is no folder" if kind is stat.S_ISDIR else "is no file"
    if held.st_uid != os.geteuid():
        return f"belongs to another user (uid {held.st_uid})"
    if held.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"may be written to by others (mode {stat.S_IMODE(held.st_mode):o})"
    return ""


def _name(dataset: str, batch_size: int | None, machine: str, ranks: int) -> str:
    key = hashlib.sha256(f"{dataset} {batch_size} {machine}".encode()).hexdigest()[:24]
    return f"{key}-{ranks}.json"


def _prune(place: Path) -> None:
    """Let go of the oldest beyond what is kept, and of what a killed writer left. Another process may do the same."""
    with suppress(OSError):
        found = [(each.stat().st_mtime, each) for each in place.iterdir() if _NAME.fullmatch(each.name)]
        newest = max((at for at, _ in found), default=0.0)
        old = [each for _, each in sorted(found, reverse=True)[_MOST:]]
        old += [each for each in place.glob(".new-*") if each.stat().st_mtime < newest - 3600]
        for each in old:
            with suppress(OSError):
                each.unlink()
