"""Reads from a dataset's source when it loads its data: all in ``__init__``, or each sample when asked for."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from stoker._pickling.instances import own_dict
from stoker._tools.doctor.facts.scan import Preload

_READERS = frozenset(
    {
        "open", "imread", "imdecode", "load", "loadtxt", "genfromtxt", "fromfile", "read_image", "decode_image", "decode_jpeg",
        "read_csv", "read_parquet", "read_bytes", "read_text", "loadmat", "read_video", "default_loader", "pil_loader",
    }
)  # fmt: skip
_OF = {"load": ("np", "numpy", "torch", "torchaudio", "librosa", "pickle", "json", "joblib", "sf", "yaml")}
"""Names that are too common by themselves: what they have to be called on."""

_WHOLE = frozenset({"load", "loadtxt", "genfromtxt", "fromfile", "read_csv", "read_parquet", "loadmat"})
"""Those that fill an attribute with one call."""

_MAKERS = frozenset(
    {"rand", "randn", "random", "randint", "normal", "uniform", "standard_normal", "integers"}
)
_OF_MAKERS = ("np.random", "numpy.random", "torch", "rng", "self.rng")
_DATASET = re.compile(r"dataset|data_set|\bds\b|inner|base_set|wrapped", re.IGNORECASE)
"""Names of arguments that are other datasets."""
_LOOPS = (ast.For, ast.ListComp, ast.DictComp, ast.GeneratorExp)
_MAPPING = ("mmap", "mmap_mode")
_WRAPPERS = 4
"""Datasets around the one that holds the data: subsets and the like."""


def preloads(dataset: Any) -> tuple[Preload, ...]:
    """What ``__init__`` fills with all data, as far as the source shows it. Empty where there is none."""
    found: list[Preload] = []
    path = "dataset"
    for _ in range(_WRAPPERS):
        found += _of_class(dataset, path)
        dataset, path = (own_dict(dataset) or {}).get("dataset"), f"{path}.dataset"
        if dataset is None:
            break
    return tuple(found)


def _of_class(dataset: Any, path: str) -> list[Preload]:
    init, fetch = _source(dataset, "__init__"), _source(dataset, "__getitem__")
    if init is None:
        return []
    only_indexed = fetch is not None and not any(True for _ in _reads(fetch[0]))
    tree, file, line = init
    found: dict[str, Preload] = {}
    others = _other_datasets(dataset, tree)

    def note(attribute: str, call: ast.expr, name: str, how: str) -> None:
        if attribute:
            at = line + call.lineno - 1
            found.setdefault(attribute, Preload(f"{path}.{attribute}", name, how, at, file, only_indexed))

    for each in ast.walk(tree):
        if isinstance(each, _LOOPS):
            for call, name in _reads(each):
                note(_kept_in(tree, each), call, name, "loop")
            for taken, name in _samples_of(others, each):
                note(_kept_in(tree, each), taken, name, "dataset")
    for each in ast.walk(tree):
        if isinstance(each, ast.Assign) and not any(isinstance(part, _LOOPS) for part in ast.walk(each)):
            for call, name in _reads(each.value):
                if name.rpartition(".")[2] in _WHOLE:
                    note(_attribute(each.targets[0]), call, name, "whole")
            for call, name in _makes(each.value):
                note(_attribute(each.targets[0]), call, name, "made")
    return sorted(found.values(), key=lambda each: each.line)


def _other_datasets(dataset: Any, tree: ast.AST) -> set[str]:
    """Names in ``__init__`` of datasets whose samples are read or made when asked for: arguments, and what it makes itself."""
    function = next((vars(cls)["__init__"] for cls in type(dataset).__mro__ if "__init__" in vars(cls)), None)
    known = getattr(function, "__globals__", {})
    found = {
        argument.arg
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and each.name == "__init__"
        for argument in (*each.args.args, *each.args.kwonlyargs)
        if _DATASET.search(argument.arg)
    }
    for each in ast.walk(tree):
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call):
            made = each.value.func
            cls = known.get(made.id) if isinstance(made, ast.Name) else None
            if isinstance(cls, type) and _class_reads(cls):
                found.add(ast.unparse(each.targets[0]))
    return found


def _class_reads(cls: type) -> bool:
    """Whether the ``__getitem__`` of a class reads files."""
    fetch = _source_of(cls, "__getitem__")
    return fetch is not None and any(True for _ in _reads(fetch[0]))


def _samples_of(others: set[str], loop: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Where a loop takes the samples of another dataset: ``inner[index]``, with an index that is no constant."""
    for each in ast.walk(loop):
        if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Load):
            name = ast.unparse(each.value)
            if name in others and not isinstance(each.slice, ast.Constant | ast.Slice):
                yield each, name


def _source(dataset: Any, name: str) -> tuple[ast.AST, str, int] | None:
    return _source_of(type(dataset), name)


def _source_of(kind: type, name: str) -> tuple[ast.AST, str, int] | None:
    for cls in kind.__mro__:
        if name not in vars(cls):
            continue
        try:
            lines, first = inspect.getsourcelines(vars(cls)[name])
            return ast.parse(textwrap.dedent("".join(lines))), inspect.getsourcefile(cls) or "", first
        except (OSError, TypeError, SyntaxError):
            return None
    return None


def _calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str, str, str]]:
    """Every call with its name, what it is called on, and the last part of the name."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Call):
            name = ast.unparse(each.func)
            owner, _, last = name.rpartition(".")
            yield each, name, owner, last


def _reads(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    for call, name, owner, last in _calls(tree):
        mapped = any(each.arg in _MAPPING for each in call.keywords)
        if last in _READERS and (last not in _OF or owner in _OF[last]) and not mapped:
            yield call, name


def _makes(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    for call, name, owner, last in _calls(tree):
        if last in _MAKERS and owner in _OF_MAKERS:
            yield call, name


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
