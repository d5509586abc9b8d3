"""Finds the objects that ``share`` may pack: what there is, where it is held, what will happen to it. Changes nothing.

Every object is looked at once. It becomes a node, which later says what takes the object's place; every place that holds an
object which may be replaced becomes a spot. An object in two places is one node, so both places get the same thing.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import DataLoader, Dataset

from stoker._pickling.instances import own_dict
from stoker._sharing.decisions import FEW, ShareAction, ShareDecision, judge

_DEEP = 60
_LONG = 40
_MISSING = object()


@dataclass(slots=True, eq=False)
class SurveyNode:
    """An object, and what takes its place: itself, unless it is packed or rebuilt."""

    obj: Any
    replacement: Any = _MISSING
    parts: list[SurveyNode] | None = None
    """Of a tuple (and of a list or dict that the user named): what it is rebuilt from, when one of the parts changes."""

    _known: bool | None = None

    def changes(self) -> bool:
        """Whether something else takes its place. Asked when everything packed has been opened, so the answer stays."""
        if self._known is None:
            self._known = self._changes(set())
        return self._known

    def _changes(self, seen: set[int]) -> bool:
        if self.replacement is not _MISSING:
            return True
        if self.parts is None or id(self) in seen:
            return False
        seen.add(id(self))
        return any(part._changes(seen) for part in self.parts)

    def value(self) -> Any:
        """What takes the object's place. Called when everything packed has been opened."""
        if self.replacement is not _MISSING:
            return self.replacement
        if self.parts is None or not self.changes():
            return self.obj
        kind, parts = type(self.obj), self.parts
        if isinstance(self.obj, dict):
            self.replacement = kind()
            self.replacement.update(zip(self.obj, (part.value() for part in parts), strict=True))
        elif kind is list:
            self.replacement = []
            self.replacement.extend(part.value() for part in parts)
        else:
            values = [part.value() for part in parts]
            self.replacement = kind._make(values) if hasattr(kind, "_make") else tuple(values)
        return self.replacement


@dataclass(frozen=True, slots=True)
class Spot:
    """A place that holds an object: a key of a dict (attributes are that too), a place in a list, a slot."""

    node: SurveyNode
    path: str
    owner: Any
    key: Any

    def get(self) -> Any:
        """What is there now."""
        if isinstance(self.key, types.MemberDescriptorType):
            return self.key.__get__(self.owner)
        return self.owner[self.key]

    def put(self, value: Any) -> None:
        """Past ``__setattr__`` and properties: nothing of the user's runs."""
        if isinstance(self.key, types.MemberDescriptorType):
            self.key.__set__(self.owner, value)
        else:
            self.owner[self.key] = value


@dataclass(slots=True)
class Found:
    """Something worth a line in the report."""

    path: str
    node: SurveyNode
    verdict: ShareDecision
    also: list[str] = field(default_factory=list)


class Survey:
    """Looks through an object. One use; the caller's thread."""

    def __init__(self, obj: Any, min_bytes: int) -> None:
        self.found: list[Found] = []
        self.spots: list[Spot] = []
        self._min_bytes = min_bytes
        self._nodes: dict[int, SurveyNode] = {}
        self._found_at: dict[int, Found] = {}
        self.root = self._look(obj, _root_name(obj), min_bytes, 0, copies=True)

    def to_pack(self) -> list[Found]:
        """What shall be packed."""
        return [found for found in self.found if found.verdict.fate is ShareAction.PACK]

    def _look(self, obj: Any, path: str, min_bytes: int, depth: int, *, copies: bool) -> SurveyNode:
        """``copies``: the container is the user's own argument (or lies in it), and is rebuilt instead of changed."""
        known = self._nodes.get(id(obj))
        if known is not None:
            if id(obj) in self._found_at:
                self._found_at[id(obj)].also.append(path)
            return known
        verdict = judge(obj, min_bytes, root=depth == 0)
        node = SurveyNode(obj)
        if verdict.fate is ShareAction.KEEP and not verdict.reason:
            return node  # numbers and names: nothing to remember
        self._nodes[id(obj)] = node
        if verdict.fate is ShareAction.PACK or (verdict.reason and self._worth_telling(verdict, depth)):
            self._found_at[id(obj)] = Found(path, node, verdict)
            self.found.append(self._found_at[id(obj)])
        if verdict.fate is ShareAction.ENTER and depth < _DEEP:
            inner = min_bytes if verdict.inner_bytes is None else verdict.inner_bytes
            self._enter(node, path, inner, depth + 1, copies=copies)
        return node

    def _worth_telling(self, verdict: ShareDecision, depth: int) -> bool:
        return depth == 0 or verdict.nbytes >= self._min_bytes or verdict.tell

    def _enter(self, node: SurveyNode, path: str, min_bytes: int, depth: int, *, copies: bool) -> None:
        obj = node.obj
        if isinstance(obj, tuple):
            names = getattr(obj, "_fields", None)
            steps = [f".{name}" for name in names] if names else [f"[{place}]" for place in range(len(obj))]
            self._parts(node, list(obj), [path + step for step in steps], min_bytes, depth, copies)
        elif type(obj) in (list, dict, OrderedDict):
            if len(obj) > FEW:
                return
            keys = list(obj) if isinstance(obj, dict) else list(range(len(obj)))
            paths = [f"{path}[{_short(key)}]" for key in keys]
            if copies:
                self._parts(node, [obj[key] for key in keys], paths, min_bytes, depth, copies)
                return
            for key, inner_path in zip(keys, paths, strict=True):
                self._spot(obj[key], inner_path, obj, key, min_bytes, depth)
        else:
            for name, owner, key, value in _attributes(obj):
                self._spot(value, f"{path}.{name}", owner, key, self._min_bytes, depth)

    def _parts(
        self, node: SurveyNode, values: list[Any], paths: list[str], min_bytes: int, depth: int, copies: bool
    ) -> None:
        node.parts = []
        for value, path in zip(values, paths, strict=True):
            node.parts.append(self._look(value, path, min_bytes, depth, copies=copies))

    def _spot(self, value: Any, path: str, owner: Any, key: Any, min_bytes: int, depth: int) -> None:
        inner = self._look(value, path, min_bytes, depth, copies=False)
        if id(value) in self._nodes:
            self.spots.append(Spot(inner, path, owner, key))


def _attributes(obj: Any) -> Iterator[tuple[str, Any, Any, Any]]:
    """Name, owner, key and value of every instance attribute, without running code of the object's class."""
    attributes = own_dict(obj)
    if attributes is not None:
        # The rest of a loader is machinery.
        names = ["dataset"] if isinstance(obj, DataLoader) else list(attributes)
        for name in names:
            yield str(name), attributes, name, attributes[name]
    for base in type(obj).__mro__:
        if "__slots__" not in base.__dict__:
            continue
        for name, slot in base.__dict__.items():
            if isinstance(slot, types.MemberDescriptorType):
                try:
                    yield name, obj, slot, slot.__get__(obj)
                except AttributeError:  # a slot that nothing was put into
                    continue


def _root_name(obj: Any) -> str:
    kind = type(obj)
    plain = kind.__module__.partition(".")[0] in (
        "builtins",
        "collections",
        "numpy",
        "torch",
        "pandas",
        "pyarrow",
    )
    plain = plain and not isinstance(obj, Dataset)
    return "dataset" if not plain and hasattr(kind, "__getitem__") else kind.__name__


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"
