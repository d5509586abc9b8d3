"""Finds the loaders of a script that the doctor can be given, without running the script. Pure: reads the source only."""

from __future__ import annotations

import ast


def reachable(text: str) -> list[str]:
    """Names for ``train.py:NAME``: loaders at the top level, and functions without arguments that return one.

    Empty when importing the script would train: a loop over something that is called a loader stands at its top level. Raises
    SyntaxError for what is no Python.
    """
    tree = ast.parse(text)
    if any(_trains(each) for each in tree.body if not _is_guard(each)):
        return []
    found = []
    for each in tree.body:
        if isinstance(each, ast.Assign) and _makes_loader(each.value):
            found += [target.id for target in each.targets if isinstance(target, ast.Name)]
        elif isinstance(each, ast.FunctionDef) and _is_maker(each):
            found.append(each.name)
    return found


def _is_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


def _trains(statement: ast.stmt) -> bool:
    """Whether running this statement may run a training: a loop, or a call of one of the script's own functions."""
    if isinstance(
        statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    ):
        return False
    loops = (ast.For, ast.While)
    return any(isinstance(each, loops) for each in ast.walk(statement)) or (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Name)
        and statement.value.func.id not in ("print",)
    )


def _is_maker(function: ast.FunctionDef) -> bool:
    given = function.args
    needed = len(given.posonlyargs) + len(given.args) - len(given.defaults)
    needed += sum(each is None for each in given.kw_defaults)
    returned = [
        each for each in ast.walk(function) if isinstance(each, ast.Return) and each.value is not None
    ]
    return not needed and any(each.value is not None and _makes_loader(each.value) for each in returned)


def _makes_loader(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    return str(name).endswith("DataLoader")
