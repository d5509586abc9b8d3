"""Names in the package: a search for a class finds one, and every module says what it is for."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import stoker

ROOT = Path(stoker.__file__).parent
TREES = {str(path.relative_to(ROOT)): ast.parse(path.read_bytes()) for path in sorted(ROOT.rglob("*.py"))}


def test_every_class_name_stands_once() -> None:
    homes = defaultdict(list)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(f"{path}:{node.lineno}")
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [path for path, tree in TREES.items() if not ast.get_docstring(tree)] == []
