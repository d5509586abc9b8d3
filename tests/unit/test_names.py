"""Names in the source tree: each class name stands once, each module says what it is for, and nothing is left unused."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import stoker

SOURCE = Path(stoker.__file__).parent
TREES = {
    path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))
}
CALLED_BY_OTHERS = {
    "on_save",  # the Trainer, of callbacks
    "_from_iterable",  # collections.abc.Set
    "emit",  # logging
    "format_commands", "get_command", "list_commands",  # click
    "on_save_checkpoint",  # Lightning, of callbacks
}  # fmt: skip
"""Methods that only other packages call."""

DYNAMIC = re.compile(r"visit_|test_|_repr_")
"""Names that ast, pytest and notebooks look up."""


def _definitions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Functions and classes of a module, and methods of its classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from _definitions(node.body)
        elif isinstance(node, ast.If | ast.Try):
            yield from _definitions([*node.body, *node.orelse])


def test_each_class_name_stands_once():
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(path)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_each_module_says_what_it_is_for():
    assert [path for path, tree in TREES.items() if not ast.get_docstring(tree)] == []


def test_each_definition_is_named_elsewhere_in_the_tree():
    words = Counter(word for path in TREES for word in re.findall(r"\w+", (SOURCE / path).read_text()))
    unused = {
        node.name
        for tree in TREES.values()
        for node in _definitions(tree.body)
        if words[node.name] == 1 and not node.name.endswith("__") and not DYNAMIC.match(node.name)
    }
    assert unused - CALLED_BY_OTHERS == set()
