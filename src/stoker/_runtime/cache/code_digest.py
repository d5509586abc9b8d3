"""Reads code for an identity: functions, classes and modules of the user, as far as their code names each other.

Of a library, the version counts. Of a module that a function imports when it runs, the source file counts.
"""

from __future__ import annotations

import builtins
import dis
import functools
import importlib.util
import os
import sys
from collections.abc import Iterable
from enum import Enum
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple, Protocol

from stoker._runtime.cache import sources

_MADE_IN_C = (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
_BY_NAME = frozenset({"getattr", "vars", "__dict__", "globals", "eval", "exec"})
"""Code that uses one of these may reach any name of a module."""

_NOT_READ = frozenset(
    {"_abc_impl", "_member_map_", "_value2member_map_", "_hashable_values_", "_unhashable_values_"}
)


class ValueDigest(Protocol):
    """What this module asks of a digest: to take bytes, and to read values."""

    opaque: list[str]

    def put(self, tag: str, data: bytes = b"") -> None: ...
    def add(self, value: Any, depth: int) -> None: ...
    def first_time(self, key: object) -> bool: ...
    def cannot_read(self, what: str) -> None: ...


class CodeNames(NamedTuple):
    """What a function's code names, that of functions inside it included."""

    loaded: tuple[str, ...]
    required: frozenset[str]
    mentioned: frozenset[str]
    imported: tuple[tuple[str, int, tuple[str, ...]], ...]


def add_function(digest: ValueDigest, function: FunctionType, depth: int) -> None:
    """Read a function: its code, defaults, closure, and the globals that it uses. Of a library's function, only its closure."""
    digest.put("function", f"{module_of(function)}.{function.__qualname__}".encode())
    if sources.is_library(function.__code__.co_filename):
        digest.put("library", sources.version_of(function.__module__))
    else:
        add_code(digest, function.__code__, depth)
        for part in (function.__defaults__, function.__kwdefaults__, dict(vars(function))):
            digest.add(part, depth + 1)
        _add_globals(digest, function, depth)
    for cell in function.__closure__ or ():
        try:
            digest.add(cell.cell_contents, depth + 1)
        except ValueError:  # not filled yet
            digest.put("empty")


def add_code(digest: ValueDigest, code: CodeType, depth: int) -> None:
    """Read the instructions and constants of code."""
    digest.put("code", code.co_code)
    digest.put("names", repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for const in code.co_consts:
        digest.add(const, depth + 1)


def _add_globals(digest: ValueDigest, function: FunctionType, depth: int) -> None:
    names = names_in(function.__code__)
    found = function.__globals__
    for name in names.loaded:
        if name in found:
            if not (name.startswith("__") and name.endswith("__")):
                digest.put("global", name.encode())
                _add_named(digest, f"global {name} of {found.get('__name__')}", found[name], names, depth)
        elif name in names.required and not hasattr(builtins, name):
            _add_missing(digest, name, found)
    for imported in names.imported:
        _add_import(digest, imported, found)


def _add_missing(digest: ValueDigest, name: str, found: dict[str, Any]) -> None:
    """A global that is defined below a decorated function, for instance: all of the file counts in its place."""
    module = sys.modules.get(str(found.get("__name__")))
    source = b"" if module is None else sources.source_of(module)
    if not source:
        digest.cannot_read(f"the global {name}, which is not defined yet")
    digest.put("source", source)


def _add_import(
    digest: ValueDigest, imported: tuple[str, int, tuple[str, ...]], found: dict[str, Any]
) -> None:
    name, level, parts = imported
    if level:
        try:
            name = importlib.util.resolve_name("." * level + name, found.get("__package__") or None)
        except ImportError:
            return
    for each in (name, *(f"{name}.{part}" for part in parts)):
        digest.put("import", each.encode())
        digest.put("source", sources.source_by_name(each))


def _add_named(digest: ValueDigest, what: str, value: Any, names: CodeNames, depth: int) -> None:
    """Read what a name leads to, and say which name it was if that cannot be read."""
    before = len(digest.opaque)
    if isinstance(value, ModuleType):
        _add_names_of(digest, value, names, depth)
    else:
        digest.add(value, depth + 1)
    if len(digest.opaque) > before and "global " not in digest.opaque[before]:
        digest.opaque[before] += f", the {what}"


def _add_names_of(digest: ValueDigest, module: ModuleType, names: CodeNames, depth: int) -> None:
    """Read of a module what code names, or all of its source where code may reach anything."""
    if sources.is_library_module(module.__name__):
        digest.put("library", sources.version_of(module.__name__))
        return
    digest.put("module", module.__name__.encode())
    if not digest.first_time((id(module), names)):
        return
    used = sorted(names.mentioned & vars(module).keys())
    if not used or names.mentioned & _BY_NAME:
        digest.put("source", sources.source_of(module))
    for name in used:
        if not (name.startswith("__") and name.endswith("__")):
            digest.put("global", name.encode())
            what = f"global {name} of {module.__name__}"
            _add_named(digest, what, vars(module)[name], names, depth)


def add_module(digest: ValueDigest, module: ModuleType) -> None:
    """Read a module that is a value: its source, or the version of the library."""
    if sources.is_library_module(module.__name__):
        digest.put("library", sources.version_of(module.__name__))
    else:
        digest.put("module", module.__name__.encode())
        digest.put("source", sources.source_of(module))


def add_class(digest: ValueDigest, kind: type, depth: int) -> None:
    """Read a class: its bases, methods and other attributes. Of a library's class, the version of the library."""
    digest.put("class", f"{module_of(kind)}.{kind.__qualname__}".encode())
    if sources.is_library_module(kind.__module__):
        digest.put("library", sources.version_of(kind.__module__))
        return
    path = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if isinstance(path, str) and os.path.splitext(path)[1] in (".so", ".pyd"):
        digest.put("compiled", sources.stamp_of_file(path))
    for base in kind.__bases__:
        digest.add(base, depth + 1)
    for name, value in _attributes_of(kind):
        digest.put("attribute", name.encode())
        digest.add(value, depth + 1)


def _attributes_of(kind: type) -> Iterable[tuple[str, Any]]:
    """What a class defines: functions inside of properties and the like stand for these."""
    enum = issubclass(kind, Enum)
    for name, value in sorted(vars(kind).items()):
        inner = getattr(value, "__func__", value) if isinstance(value, staticmethod | classmethod) else value
        special = name.startswith("__") and name.endswith("__")
        if isinstance(inner, property):
            yield name, (inner.fget, inner.fset)
        elif isinstance(inner, _MADE_IN_C) or name in _NOT_READ:
            continue
        elif enum and isinstance(inner, kind):
            yield name, repr(inner)
        elif isinstance(inner, FunctionType) or not special:
            yield name, inner


def module_of(thing: Any) -> str:
    """The module's name; the main module has another one in spawned workers."""
    return str(thing.__module__).replace("__mp_main__", "__main__")


@functools.lru_cache(8192)
def names_in(code: CodeType) -> CodeNames:
    """Return what code names."""
    loaded: set[str] = set()
    required: set[str] = set()
    mentioned: set[str] = set(code.co_names)
    imported: list[tuple[str, int, tuple[str, ...]]] = []
    before: list[dis.Instruction] = []
    for each in dis.get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            loaded.add(each.argval)
            if each.opname == "LOAD_GLOBAL":
                required.add(each.argval)
        elif each.opname == "IMPORT_NAME":
            levels = [past.argval for past in before[-2:] if type(past.argval) is int]
            imported.append((each.argval, levels[0] if levels else 0, ()))
        elif each.opname == "IMPORT_FROM" and imported:
            name, level, parts = imported[-1]
            imported[-1] = (name, level, (*parts, each.argval))
        before.append(each)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            inner = names_in(const)
            loaded.update(inner.loaded)
            required.update(inner.required)
            mentioned.update(inner.mentioned)
            imported.extend(inner.imported)
    return CodeNames(tuple(sorted(loaded)), frozenset(required), frozenset(mentioned), tuple(imported))
