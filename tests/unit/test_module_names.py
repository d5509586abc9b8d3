"""Modules that strings and comments of the source tree name by a dotted path are there, and have what is named in them."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

import stoker

SOURCE = Path(stoker.__file__).parent
TESTS = Path(__file__).parents[1]
DOTTED = re.compile(r"(?<![\w./*])(?:stoker\.)?(_[a-z]\w*(?:\.\w+)+)(?=[\w.]*(`?))")
"""A path from the folder of the package: its first part is private. Followed by what closes a quoted name, if anything."""
OURS = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name.startswith("_")}


def dangling(line: str) -> list[str]:
    """The names in a line that lead nowhere: those of our folders, and all that begin a quoted name. Imports are mypy's."""
    found: list[str] = []
    if line.lstrip().startswith(("from ", "import ")):
        return found
    for match in DOTTED.finditer(line):
        name = match[1]
        quoted = line[: match.start()].endswith("``") and match[2]
        if (name.split(".")[0] in OURS or quoted) and not _leads_somewhere(name.split(".")):
            found.append(name)
    return found


def _leads_somewhere(parts: list[str]) -> bool:
    place = SOURCE
    for number, part in enumerate(parts):
        if (place / part).is_dir():
            place /= part
            continue
        module, inside = place / f"{part}.py", parts[number + 1 :]
        if not module.is_file():  # a name that the package itself has
            module, inside = place / "__init__.py", parts[number:]
        return number > 0 and module.is_file() and _defined(module) >= set(inside)
    return True


@functools.cache
def _defined(module: Path) -> set[str]:
    """The names that a module defines or imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
    return found


def test_modules_that_are_named_exist() -> None:
    assert [
        f"{path.relative_to(SOURCE)}:{number}: {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for name in dangling(line)
    ] == []


@pytest.mark.parametrize(
    "line",
    [
        '"""``_device.idle.IdleMeter``, as the recorder sees it."""',
        "# as _runtime.device.idle does",
        ":mod:`stoker._runtime.transport.gone`",
        "``_record.instruments.Gone`` is not there",
    ],
)
def test_a_name_that_leads_nowhere_is_found(line: str) -> None:
    assert len(dangling(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "from stoker._runtime.device.idle_meter import IdleMeter",
        "``_runtime.device.idle_meter.IdleMeter`` and ``_runtime.device``",
        "self._record.totals, other._runtime.gone and _runtime/device/idle_meter.py",
        "_short.repr(value)",
    ],
)
def test_a_name_that_leads_somewhere_is_not(line: str) -> None:
    assert dangling(line) == []


def test_files_that_strings_name_by_the_end_of_their_path_exist() -> None:
    """Such as "/executors/interrupt_guard.py", by which tests choose places in the engine."""
    files = [f"/{path.relative_to(SOURCE)}" for path in SOURCE.rglob("*.py")]
    ours = {folder for file in files for folder in file.split("/")[1:-1]}
    named = {
        name
        for folder in (SOURCE, TESTS)
        for path in folder.rglob("*.py")
        for name in re.findall(r'"((?:/\w+)+\.py)"', path.read_text(encoding="utf-8"))
        if name.split("/")[1] in ours
    }
    assert "/executors/interrupt_guard.py" in named
    assert [name for name in sorted(named) if not any(file.endswith(name) for file in files)] == []
