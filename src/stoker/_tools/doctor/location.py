"""Finds the place in the user's files that a finding is about."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoker._record.finding import Finding
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts


@dataclass(frozen=True, slots=True)
class Location:
    """``line`` is 1 when only the file is known: it is not ``exact`` then."""

    file: str
    line: int = 1
    exact: bool = True

    @property
    def relative(self) -> str:
        """The file as seen from the working directory, with forward slashes; absolute when it does not lie below it."""
        path = os.path.relpath(self.file)
        return (os.path.abspath(self.file) if path.startswith("..") else path).replace(os.sep, "/")


def location(finding: Finding, facts: Mapping[str, Any]) -> Location | None:
    """The line its edit is about; else that of the loader or of the dataset's class, whichever it names; else the target's file.

    None when it is about no file: the machine, or an object of unknown origin.
    """
    target = facts.get("target")
    if not isinstance(target, TargetFacts):
        return None
    site = finding.edit.site if finding.edit else None
    if site is not None and (made := made_at(site, target)) is not None:
        return made
    if finding.code.startswith("STK2"):
        return None
    if (finding.where or "").startswith(("dataset", "sample")) and target.dataset_file:
        return Location(target.dataset_file, target.dataset_line or 1)
    if target.loader.file and not target.assumed:
        return Location(target.loader.file, target.loader.line or 1)
    if target.dataset_file:
        return Location(target.dataset_file, target.dataset_line or 1)
    return Location(target.file, exact=False) if target.file else None


def made_at(site: str, target: TargetFacts) -> Location | None:
    """What "train.py:31" is on this machine: the loader made there, the dataset's class or the target's file."""
    loaders: tuple[LoaderArguments, ...] = (target.loader, *target.others)
    for loader in loaders:
        if loader.site == site and loader.file:
            return Location(loader.file, loader.line or 1, loader.line is not None)
    name, _, number = site.rpartition(":")
    exact = bool(name) and number.isdigit()
    line, name = (int(number), name) if exact else (1, site)
    known = [target.file, target.dataset_file, *(loader.file for loader in loaders)]
    for file in known:
        if file and (file == name or file.endswith(f"{os.sep}{name}")):
            return Location(file, line, exact)
    return None
