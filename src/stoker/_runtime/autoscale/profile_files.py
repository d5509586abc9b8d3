"""Profiles on disk. A tuning saves one; ``num_workers="auto"`` finds it by dataset, batch size and machine.

They are small JSON files in a folder of the user: ``$STOKER_PROFILES``, or ``stoker/profiles`` in the user's cache. A profile
decides how many processes are started. So a folder or file is not read if another user owns it or may write to it. Nothing in it
is executed or unpickled.
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

from stoker._host import bounded_json
from stoker._host.local_ranks import local_ranks
from stoker._record.dataset_identity import dataset_key, machine_key
from stoker._runtime.autoscale.profile import Profile

VARIABLE = "STOKER_PROFILES"
OFF = "off"
"""The value of the variable that turns profiles off: none is read or written."""
_MOST = 256
"""The number of files that are kept, the latest ones."""
_MOST_BYTES = 1 << 16
_NAME = re.compile(r"[0-9a-f]{24}-[0-9]+\.json")
_log = logging.getLogger("stoker")


def find(dataset: Any, batch_size: int | None, *, ranks: int | None = None) -> Profile | None:
    """The profile for this dataset on this machine, preferably for so many local ranks; None if there is none. Never raises.

    ``ranks`` is by default what the environment says. ``Profile.ranks`` has the number that the profile was made for.
    """
    try:
        return _found(dataset_key(dataset), batch_size, machine_key(), ranks or local_ranks(os.environ)[0])
    except Exception as error:  # a loader works without a profile
        _log.debug("no profile: %s: %s", type(error).__name__, error)
        return None


def find_key(dataset: str, batch_size: int | None, *, ranks: int | None = None) -> Profile | None:
    """The same, by the dataset's key (``identity.dataset_key``). Never raises."""
    try:
        return _found(dataset, batch_size, machine_key(), ranks or local_ranks(os.environ)[0])
    except Exception as error:
        _log.debug("no profile: %s: %s", type(error).__name__, error)
        return None


def save(profile: Profile) -> Path:
    """Write a profile, in place of one for the same dataset. Returns the file. Raises OSError."""
    place = folder(os.environ)
    if place is None:
        raise OSError(f"{VARIABLE} is {OFF!r}, or there is no home folder")
    place.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    if wrong := _wrong(place.lstat(), stat.S_ISDIR):
        raise PermissionError(f"{place} {wrong}")
    path = place / _name(profile.dataset, profile.batch_size, profile.machine, profile.ranks)
    handle, fresh = tempfile.mkstemp(dir=place, prefix=".new-")  # private to the user from the start
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
    """The folder of profiles; None if profiles are turned off or there is no folder."""
    given = environ.get(VARIABLE, "")
    if given:
        return None if given == OFF else Path(os.path.abspath(given))
    cache = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):  # the XDG specification ignores relative paths
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
    """The profile in a file; None if there is none, or it cannot be trusted."""
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
        return Profile.from_dict(bounded_json.loads(content))
    except ValueError as error:
        _log.debug("a profile is left aside: %s: %s", path, error)
        return None


def _wrong(held: os.stat_result, kind: Any) -> str:
    """The reason not to trust a file or folder; "" if there is none."""
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
    """Delete the oldest files beyond the limit, and files that a killed writer left. Another process may do the same."""
    with suppress(OSError):
        found = [(each.stat().st_mtime, each) for each in place.iterdir() if _NAME.fullmatch(each.name)]
        newest = max((at for at, _ in found), default=0.0)
        old = [each for _, each in sorted(found, reverse=True)[_MOST:]]
        old += [each for each in place.glob(".new-*") if each.stat().st_mtime < newest - 3600]
        for each in old:
            with suppress(OSError):
                each.unlink()
