"""When a dataset reads its files, by its source: all of them in ``__init__``, or each when it is asked for."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from stoker._doctor.facts.scan import Reading

_READERS = frozenset(
    {
        "open", "imread", "imdecode", "load", "loadtxt", "genfromtxt", "fromfile", "read_image", "decode_image", "decode_jpeg",
        "read_csv", "read_parquet", "read_bytes", "read_text", "loadmat", "read_video", "default_loader", "pil_loader",
    }
)  # fmt: skip
_OF = {"load": ("np", "numpy", "torch", "torchaudio", "librosa", "pickle", "json", "joblib", "sf", "yaml")}
"""Names that are too common by themselves: what they have to be called on."""


def readings(dataset: Any) -> tuple[Reading, ...]:
    """Files that ``__init__`` reads in a loop into an attribute. Empty where there is no source."""
    init, fetch = _source(dataset, "__init__"), _source(dataset, "__getitem__")
    if init is None:
        return ()
    only_indexed = fetch is not None and not any(True for _ in _reads(fetch[0]))
    tree, file, line = init
    found = {}
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For | ast.ListComp | ast.DictComp | ast.GeneratorExp):
            for call, name in _reads(loop):
                attribute = _kept_in(tree, loop)
                if attribute and attribute not in found:
                    found[attribute] = Reading(attribute, name, line + call.lineno - 1, file, only_indexed)
    return tuple(sorted(found.values(), key=lambda each: each.line))


def _source(dataset: Any, name: str) -> tuple[ast.AST, str, int] | None:
    for cls in type(dataset).__mro__:
        if name not in vars(cls):
            continue
        try:
            lines, first = inspect.getsourcelines(vars(cls)[name])
            return ast.parse(textwrap.dedent("".join(lines))), inspect.getsourcefile(cls) or "", first
        except (OSError, TypeError, SyntaxError):
            return None
    return None


def _reads(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    for each in ast.walk(tree):
        if not isinstance(each, ast.Call):
            continue
        name = ast.unparse(each.func)
        owner, _, last = name.rpartition(".")
        if last in _READERS and (last not in _OF or owner in _OF[last]):
            yield each, name


def _kept_in(tree: ast.AST, loop: ast.AST) -> str:
    """The attribute that what the loop reads ends up in, directly or by way of a local name; "" for none."""
    local = ""
    for each in ast.walk(loop):
        holder = None
        if (
            isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr in ("append", "extend", "add")
        ):
            holder = each.func.value
        elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Subscript):
            holder = each.targets[0].value
        if _attribute(holder):
            return _attribute(holder)
        if isinstance(holder, ast.Name):
            local = holder.id
    for each in ast.walk(tree):
        if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None:
            target = each.targets[0] if isinstance(each, ast.Assign) else each.target
            inside = list(ast.walk(each.value))
            named = any(isinstance(part, ast.Name) and part.id == local for part in inside if local)
            if loop in inside or named:
                found = _attribute(target)
                if found:
                    return found
    return ""


def _attribute(node: ast.AST | None) -> str:
    """ "images" of ``self.images``."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if own and isinstance(node, ast.Attribute) else ""
