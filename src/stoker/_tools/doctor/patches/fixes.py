"""Patches files: finds the file of a finding's edit, makes the unified diff, and writes it."""

from __future__ import annotations

import ast
import difflib
import os
import re
import tempfile
import tokenize
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import NamedTuple

from stoker._record.finding import SEVERITIES, Edit, Finding
from stoker._tools.doctor.catalogue import check_of
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.location import Location, made_at
from stoker._tools.doctor.patches.patch import RefusedEdit, WantedEdit, kind_of, patched


class FixError(Exception):
    """A file that was not written, and why."""


@dataclass(frozen=True, slots=True)
class FilePatch:
    """What would change in one file. ``before`` are its bytes as they were read."""

    file: str
    before: bytes
    after: bytes
    encoding: str
    made: tuple[str, ...]

    def diff(self) -> bytes:
        """As ``git apply`` and ``patch -p1`` take it, in the file's encoding; nothing when nothing changes."""
        name = Location(self.file).relative.lstrip("/")
        lines = difflib.unified_diff(
            self._lines(self.before), self._lines(self.after), f"a/{name}", f"b/{name}"
        )
        text = "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
        )
        return text.encode(self._spelling)

    @property
    def _spelling(self) -> str:
        # A mark of byte order is part of the first line here, not something that comes and goes.
        return "utf-8" if self.encoding == "utf-8-sig" else self.encoding

    def write(self) -> None:
        """Put it in the file's place, with the file's permissions. Raises FixError when the file is not as it was read."""
        path = os.path.realpath(self.file)
        try:
            ast.parse(self.after)
        except (SyntaxError, ValueError) as error:
            raise FixError(f"{self.file} would no longer be Python: {error}") from error
        try:
            with open(path, "rb") as file:
                if file.read() != self.before:
                    raise FixError(f"{self.file} has changed since it was read")
                mode = os.fstat(file.fileno()).st_mode & 0o7777
            _replace(path, self.after, mode)
        except OSError as error:
            raise FixError(f"cannot write {self.file}: {error.strerror or error}") from error

    def _lines(self, content: bytes) -> list[str]:
        # Not splitlines: a form feed ends no line of a diff.
        return re.findall(r"[^\n]*\n|[^\n]+", content.decode(self._spelling))


@dataclass(frozen=True, slots=True)
class Fixes:
    """All that can be done about a diagnosis by typing."""

    patches: tuple[FilePatch, ...]
    refused: tuple[RefusedEdit, ...]

    @property
    def made(self) -> tuple[str, ...]:
        """Codes of the findings that the patches are about."""
        return tuple(dict.fromkeys(code for each in self.patches for code in each.made))


class LocatedEdit(NamedTuple):
    """An edit with the place that it belongs to. ``refused`` is a reason not to make it, known before the file is read."""

    code: str
    edit: Edit
    file: str | None
    line: int | None = None
    refused: str | None = None


def fixes(diagnosis: Diagnosis, least: str = "moderate") -> Fixes:
    """What can be done about findings at least as bad. Reads the files they are about; writes nothing.

    Low findings are worth a thought, not a change made in passing: ``pin_memory`` may do nothing here and much elsewhere.
    """
    target = diagnosis.facts.get("target")
    located = []
    for finding in diagnosis.findings:
        mild = SEVERITIES.index(finding.severity) < SEVERITIES.index(least)
        edit = finding.edit if mild else remedy(finding, target)
        if edit is None:
            continue
        place = _place(edit, target)
        located.append(
            LocatedEdit(
                finding.code,
                edit,
                None if place is None else place.file,
                place.line if place is not None and place.exact else None,
                f"{finding.severity}: --select {finding.code} has it in the patch" if mild else None,
            )
        )
    return fixes_of(located)


def fixes_of(edits: Iterable[LocatedEdit]) -> Fixes:
    """Make one patch for each file. Reads the files; writes nothing."""
    wanted: dict[str, list[WantedEdit]] = {}
    refused: list[RefusedEdit] = []
    for each in edits:
        reason = each.refused or ("it is no change of a file" if kind_of(each.edit) == "shown" else None)
        if reason is None and each.file is None:
            reason = "its file is unknown"
        if reason is not None or each.file is None:
            refused.append(RefusedEdit(each.code, each.edit, reason or ""))
        else:
            wanted.setdefault(os.path.abspath(each.file), []).append(
                WantedEdit(each.code, each.edit, each.line)
            )
    patches = []
    for file, asked in wanted.items():
        patch, not_made = patch_of(file, asked)
        refused += not_made
        if patch is not None and patch.after != patch.before:
            patches.append(patch)
    return Fixes(tuple(patches), tuple(refused))


def remedy(finding: Finding, target: object) -> Edit | None:
    """The edit of a finding; where it has none, stoker's loader in place of torch's, if that prevents what was found."""
    if finding.edit is not None or not isinstance(target, TargetFacts):
        return finding.edit
    check, loader = check_of(finding.code), target.loader
    if (
        check is None
        or not check.prevented
        or target.assumed
        or loader.engine != "torch"
        or loader.file is None
    ):
        return None
    return Edit(
        "from stoker import DataLoader", "from torch.utils.data import DataLoader", loader.site, "import"
    )


def can_be_made(finding: Finding, target: object) -> bool:
    """Whether ``--fix`` may do something about it by itself. Whether it can is known when the file is read."""
    edit = remedy(finding, target)
    if edit is None or finding.severity not in ("moderate", "high") or kind_of(edit) == "shown":
        return False
    return _place(edit, target) is not None


def _place(edit: Edit, target: object) -> Location | None:
    if not isinstance(target, TargetFacts):
        return None
    if edit.site is not None:
        return made_at(edit.site, target)
    if kind_of(edit) == "environment" and target.file:
        return Location(target.file, exact=False)
    if target.loader.file and not target.assumed:
        return Location(target.loader.file, target.loader.line or 1, target.loader.line is not None)
    return Location(target.file, exact=False) if target.file else None


def patch_of(file: str, wanted: list[WantedEdit]) -> tuple[FilePatch | None, list[RefusedEdit]]:
    """Return a patch with all of these edits in one file, and the edits that could not be made.

    Reads the file and writes nothing. Never raises.
    """
    try:
        with open(file, "rb") as opened:
            before = opened.read()
        encoding, _ = tokenize.detect_encoding(BytesIO(before).readline)
        text = before.decode(encoding)
        found = patched(text, wanted)
    except OSError as error:
        reason = f"{file} cannot be read: {error.strerror or error}"
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        reason = f"{file} is no Python: {error}"
    else:
        after = found.text.encode(encoding) if found.text != text else before
        return FilePatch(file, before, after, encoding, found.made), list(found.refused)
    return None, [RefusedEdit(each.code, each.edit, reason) for each in wanted]


def _replace(path: str, content: bytes, mode: int) -> None:
    """Atomically: whoever reads it sees the old file or the new one."""
    handle, temporary = tempfile.mkstemp(
        dir=os.path.dirname(path), prefix=f".{os.path.basename(path)}.", suffix=".new"
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
