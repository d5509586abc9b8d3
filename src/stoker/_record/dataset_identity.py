"""Computes keys of a dataset and a machine that are the same again in the next run, for tuned profiles.

A dataset is known by its class, where that is written, its length, the code that makes samples, and its simple attributes with
those of what it is made of (transforms, datasets inside). Modules count by their files, for a script is ``__main__`` when it
runs and has a name of its own when a tool loads it. Nothing of the data is read: long containers count as such, and properties
are not called.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import json
import math
import os
import platform
import sys
import types
from collections import deque
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

_MOST_NODES = 600
_MOST_ITEMS = 32
"""Of a container: one with more is data."""
_DEEPEST = 6
_LONGEST = 4096
"""Characters of a text that count."""
_MOST_FUNCTIONS = 96
_PASSING = {
    "rank", "local_rank", "global_rank", "node_rank", "world_size", "num_replicas", "seed", "base_seed", "epoch", "device", "pid",
    "generator", "rng",
}  # fmt: skip
"""Attributes that differ between ranks, epochs or runs of the same work."""
_DATA = {
    "numpy", "pandas", "polars", "pyarrow", "h5py", "PIL", "lmdb", "zarr", "cv2", "scipy", "stoker", "tensorflow",
}  # fmt: skip
"""Packages whose objects are data, or ways to it: not looked into."""


def dataset_key(dataset: Any) -> str:
    """32 digits. Never raises; below a millisecond. Any thread."""
    found = [["length", length_of(dataset)], *_described(dataset)]
    return hashlib.sha256(json.dumps(found).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def machine_key(*, proc: Path = Path("/proc")) -> str:
    """Return a key of the hardware: CPUs, memory (by powers of two), kinds of accelerators; and whether there is a GIL.

    The name of the machine is not in it, because the nodes of a cluster are alike and containers have any name. Quota and affinity
    are not in it either: they bound a setting when it is picked up.
    """
    found = [
        platform.machine(),
        _after(_text(proc / "cpuinfo"), "model name"),
        os.cpu_count() or 1,
        _memory_class(_text(proc / "meminfo")),
        sorted(_accelerators(proc)),
        bool(getattr(sys, "_is_gil_enabled", lambda: True)()),
    ]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:32]


def length_of(dataset: Any) -> int | None:
    """``len(dataset)``; None where it has none. Never raises."""
    try:
        return len(dataset)
    except Exception:  # a stream, or a dataset that cannot tell yet
        return None


def _described(dataset: Any) -> Iterator[list[Any]]:
    """Path and value of everything that counts, the near before the far: what is cut off is the farthest."""
    waiting: deque[tuple[str, int, Any]] = deque([("", 0, dataset)])
    seen: set[int] = set()
    for _ in range(_MOST_NODES):
        if not waiting:
            return
        path, depth, value = waiting.popleft()
        # Constants are left out: which of two equal ones are one object depends on who compiled the file.
        if id(value) in seen and not isinstance(value, tuple) and _simple(value) is None:
            yield [path, "again"]
            continue
        seen.add(id(value))
        try:
            told, inner = _looked_at(value, depth)
        except Exception:  # of a user's class anything may raise
            told, inner = _class(type(value)), []
        yield [path, told]
        if depth < _DEEPEST:
            waiting.extend((f"{path}.{name}", depth + 1, each) for name, each in inner)


def _looked_at(value: Any, depth: int) -> tuple[Any, list[tuple[str, Any]]]:
    """What is said of a value, and what it is made of."""
    kind = type(value)
    simple = _simple(value)
    if simple is not None:
        return simple, []
    if isinstance(value, list | tuple | dict | set | frozenset):
        return _container(value, depth)
    if isinstance(value, types.FunctionType):
        return ["function", _file(value.__module__), value.__qualname__, _code(value.__code__)], [
            *_closed_over(value),
            *_mentioned([value]),
        ]
    if isinstance(value, types.MethodType):
        return ["method", value.__func__.__name__], [("function", value.__func__), ("self", value.__self__)]
    if isinstance(value, functools.partial):
        return ["partial"], [("function", value.func), ("args", value.args), ("keywords", value.keywords)]
    if isinstance(value, type):
        return ["class", *_class(value)], []
    if shape := _shape(value):
        return shape, []
    root = kind.__module__.partition(".")[0]
    if root in _DATA and depth:  # shared lists count as the lists that they were made of
        return "many" if hasattr(kind, "__len__") else _class(kind), []
    if root in sys.stdlib_module_names and depth:
        return [*_class(kind), str(getattr(value, "__qualname__", ""))], []
    functions = list(_functions(kind))
    told = [*_class(kind), [_code(each.__code__) for each in functions]]
    return told, [*_attributes(value), *_mentioned(functions)]


def _simple(value: Any) -> Any:
    """A value that is its own description; None when it is not."""
    kind = type(value)
    if value is None:
        return "None"
    if isinstance(value, enum.Enum):
        return f"{kind.__qualname__}.{value.name}"
    if kind in (bool, float, complex):
        return repr(value)
    if kind is int:
        return hex(value) if value.bit_length() <= 256 else "int"
    if isinstance(value, str | bytes):
        return repr(value[:_LONGEST]) if len(value) <= _LONGEST else ["text", len(value), repr(value[:64])]
    if isinstance(value, PurePath):
        return repr(str(value))
    return None


def _container(value: Any, depth: int) -> tuple[Any, list[tuple[str, Any]]]:
    if len(value) > _MOST_ITEMS:
        first = [("0", value[0])] if depth == 0 and isinstance(value, list | tuple) else []
        return "many", first
    if isinstance(value, dict):
        return ["dict"], [(str(_simple(key))[:64], each) for key, each in value.items()]
    if isinstance(value, set | frozenset):  # their order is another one in the next run
        return ["set", sorted(str(_simple(each)) for each in value)], []
    return ["row"], [(str(place), each) for place, each in enumerate(value)]


def _shape(value: Any) -> list[str] | None:
    """Return how large an array or tensor is, and nothing of its content."""
    if type(value).__module__.partition(".")[0] not in ("numpy", "torch"):
        return None
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return ["array", str(dtype), str(tuple(shape))] if shape is not None and dtype is not None else None


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Return the attributes of an instance, private ones only where they are plain: handles and caches come and go."""
    found: dict[str, Any] = dict(getattr(value, "__dict__", {}))
    for each in type(value).__mro__:
        slots = each.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if isinstance(each.__dict__.get(name), types.MemberDescriptorType) and name not in found:
                found[name] = getattr(value, name, None)
    library = f"-packages{os.sep}" in _file(type(value).__module__)
    for name, inner in sorted(found.items()):
        if name.strip("_") in _PASSING:
            continue
        if library and isinstance(inner, dict) and name != "_modules":
            continue  # what a transform remembers of its last sample
        private = name.startswith("_") and name not in ("_modules", "_buffers")
        if not private or (inner is not None and _plain(inner)):
            yield name, inner


def _plain(value: Any) -> bool:
    if isinstance(value, tuple | list) and 0 < len(value) <= _MOST_ITEMS:
        return all(_simple(each) is not None for each in value)
    return _simple(value) is not None


def _functions(kind: type) -> Iterator[types.FunctionType]:
    """What a class does with a sample, as far as it is written in Python. What ``__init__`` did is in attributes."""
    found: dict[str, types.FunctionType] = {}
    for each in kind.__mro__:
        root = each.__module__.partition(".")[0]
        if each is not kind and (root == "torch" or root in sys.stdlib_module_names):
            continue
        for name, value in vars(each).items():
            value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if isinstance(value, types.FunctionType) and name not in ("__init__", "__len__", "__repr__"):
                found.setdefault(name, value)
    return iter([function for _, function in sorted(found.items())][:_MOST_FUNCTIONS])


def _mentioned(functions: list[types.FunctionType]) -> list[tuple[str, Any]]:
    """Constants and functions of their modules that functions use: ``SIZE``, ``decode``."""
    found: dict[str, Any] = {}
    for function in functions:
        for name in _names(function.__code__):
            if name.startswith("__"):  # a script's own name is another one when it is loaded
                continue
            value = function.__globals__.get(name)
            own = isinstance(value, types.FunctionType) and value.__module__ == function.__module__
            if own or (value is not None and name.strip("_").lower() not in _PASSING and _plain(value)):
                found[f"global {name}"] = value
    return sorted(found.items())


def _names(code: types.CodeType) -> set[str]:
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*(_names(each) for each in inner))


def _closed_over(function: types.FunctionType) -> list[tuple[str, Any]]:
    """What a function remembers: the size in ``lambda image: resize(image, size)``."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    found = []
    for name, cell in cells:
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # not yet filled
            continue
    defaults = list(function.__defaults__ or ()) + list((function.__kwdefaults__ or {}).values())
    return found + [(f"default{place}", each) for place, each in enumerate(defaults)]


def _code(code: types.CodeType) -> str:
    """Describe what a function does, independent of where it stands and how it was loaded."""
    parts = [code.co_code.hex(), " ".join(code.co_names)]
    parts += [_constant(each) for each in code.co_consts]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _constant(value: Any) -> str:
    if isinstance(value, types.CodeType):
        return _code(value)
    if isinstance(value, frozenset):
        return " ".join(sorted(map(repr, value)))
    return repr(value)[:_LONGEST]


def _class(kind: type) -> list[str]:
    return [_file(kind.__module__), kind.__qualname__]


def _file(module: str) -> str:
    """Where a module is written; its name when it is in no file, as in a notebook."""
    name = getattr(sys.modules.get(module), "__file__", None)
    if not isinstance(name, str):
        return "__main__" if module == "__mp_main__" else module
    try:
        return os.path.realpath(name)
    except (OSError, ValueError):
        return module


def _after(text: str, label: str) -> str:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == label:
            return value.strip()
    return ""


def _memory_class(meminfo: str) -> int | None:
    words = _after(meminfo, "MemTotal").split()
    return round(math.log2(int(words[0]))) if words and words[0].isdigit() and int(words[0]) else None


def _accelerators(proc: Path) -> set[str]:
    """Kinds of them. Asking a driver would wake it: its files tell as much."""
    try:
        return {_after(_text(each), "Model") for each in proc.glob("driver/nvidia/gpus/*/information")}
    except OSError:
        return set()


def _text(path: Path) -> str:
    """Its beginning: what is asked for stands there, and the rest is long on a large machine."""
    try:
        with path.open("rb") as file:
            return file.read(4096).decode("utf-8", "replace")
    except OSError:
        return ""
