"""What a page defines and never calls does not run: the body of a method, a branch. There every name has to exist all the same."""

from __future__ import annotations

import ast
import builtins
import inspect
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.docs.blocks import Block

_NOTHING = object()


def wrong(blocks: Iterable[Block], names: Mapping[str, Any]) -> list[str]:
    """What cannot be right, whoever calls it: names from nowhere, attributes that a module or class lacks, arguments nobody takes.

    ``names`` are those of the page at its end.
    """
    trees = [(each, ast.parse(each.source)) for each in blocks if not each.source.startswith(">>>")]
    local = {name for _, tree in trees for name in made(tree)}
    known = local | names.keys() | set(dir(builtins))
    return [
        f"{block.page}:{block.line + getattr(node, 'lineno', 1) - 1}: {text}"
        for block, tree in trees
        for lasting in [_lasting(tree, names)]
        for node in ast.walk(tree)
        for text in _judged(node, known, lasting)
    ]


def _judged(node: ast.AST, known: set[str], names: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(node, ast.Name) and node.id not in known:
        yield f"{node.id} comes from nowhere"
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        owner = _value(node.value, names)
        if isinstance(owner, types.ModuleType | type) and not hasattr(owner, node.attr):
            yield f"{ast.unparse(node.value)} has no {node.attr}"
    elif isinstance(node, ast.Call):
        called = _value(node.func, names)
        if isinstance(called, types.FunctionType | types.BuiltinFunctionType | type):
            yield from _refused(node, called)


def _refused(call: ast.Call, called: Any) -> Iterator[str]:
    """Keywords that it does not know, and more arguments than it takes."""
    try:
        taken = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):  # written in C
        return
    kinds = {each.kind for each in taken}
    by_name = {each.name for each in taken if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for keyword in call.keywords:
            if keyword.arg is not None and keyword.arg not in by_name:
                yield f"{ast.unparse(call.func)} takes no {keyword.arg}="
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        most = sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in taken)
        if len(call.args) > most and not any(isinstance(each, ast.Starred) for each in call.args):
            yield f"{ast.unparse(call.func)} takes {most} arguments, not {len(call.args)}"


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """What ``stoker.share`` or ``DataLoader`` is. Of objects nothing is known: which one it is depends on the call."""
    if isinstance(node, ast.Name):
        return names.get(node.id, _NOTHING)
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, names)
        if isinstance(owner, types.ModuleType | type):
            return getattr(owner, node.attr, _NOTHING)
    return _NOTHING


def _lasting(tree: ast.AST, names: Mapping[str, Any]) -> dict[str, Any]:
    """Names that mean in every place of a block what they mean at the end of the page: none that a function binds anew."""
    bound = {
        name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for name in made(function)
    }
    return {name: value for name, value in names.items() if name not in bound}


def made(tree: ast.AST) -> set[str]:
    """Names that are bound somewhere in a tree."""
    nodes = list(ast.walk(tree))
    made = {each.id for each in nodes if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    made |= {each.arg for each in nodes if isinstance(each, ast.arg)}
    made |= {
        each.name for each in nodes if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    made |= {each.name for each in nodes if isinstance(each, ast.ExceptHandler) and each.name}
    made |= {(each.asname or each.name).split(".")[0] for each in nodes if isinstance(each, ast.alias)}
    return made
