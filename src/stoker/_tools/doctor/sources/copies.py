"""Reads from a script's text where a training loop copies batches to a device and waits for it. Nothing of it runs.

A loop counts if it goes over something that is called a loader, or was assigned one in the same file. A copy counts if it is
made of the loop's own variable and does not say ``non_blocking=True``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_LOADERS = ("DataLoader", "StatefulDataLoader")


@dataclass(frozen=True, slots=True)
class WaitingCopy:
    """A copy that waits: its line, and its text."""

    line: int
    text: str


def waiting_copies(source: str) -> tuple[WaitingCopy, ...]:
    """The copies of loops over loaders, in order. () for text that is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    loaders = _assigned(tree)
    found: dict[int, WaitingCopy] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and _is_over_loader(node.iter, loaders):
            names = {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
            for copy in _copies(node.body, names):
                found.setdefault(copy.line, copy)
    return tuple(found[line] for line in sorted(found))


def _assigned(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = node.value.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in _LOADERS:
                names |= {each.id for each in node.targets if isinstance(each, ast.Name)}
    return names


def _is_over_loader(expression: ast.expr, loaders: set[str]) -> bool:
    names = [each.id for each in ast.walk(expression) if isinstance(each, ast.Name)]
    names += [each.attr for each in ast.walk(expression) if isinstance(each, ast.Attribute)]
    return any(name in loaders or "loader" in name.lower() for name in names)


def _copies(body: list[ast.stmt], names: set[str]) -> Iterator[WaitingCopy]:
    for statement in body:
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if _root(node.func.value) not in names:
                continue
            if node.func.attr == "cuda" or (node.func.attr == "to" and _names_device(node)):
                waits = not any(each.arg == "non_blocking" for each in node.keywords)
                if waits:
                    yield WaitingCopy(node.lineno, ast.unparse(node))


def _root(expression: ast.expr) -> str:
    """The name that ``batch["x"].data`` begins with; "" for a result of a call."""
    while isinstance(expression, ast.Subscript | ast.Attribute):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def _names_device(call: ast.Call) -> bool:
    """Whether ``to`` is given a device, as far as one can see: a dtype is ``torch.something``."""
    for each in [*call.args[:1], *[each.value for each in call.keywords if each.arg == "device"]]:
        if isinstance(each, ast.Constant):
            return isinstance(each.value, int) or (
                isinstance(each.value, str) and not each.value.startswith("cpu")
            )
        if isinstance(each, ast.Name | ast.Attribute):
            return "device" in ast.unparse(each).lower()
        if isinstance(each, ast.Call):
            return "device" in ast.unparse(each.func).lower()
    return False
