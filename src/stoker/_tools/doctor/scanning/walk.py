"""Walks over a dataset's objects: nearest first, each once, with the ways in which it gets into a worker.

HELD: a forked worker inherits it. PLAIN: plain pickle would have to take it (torch under spawn and forkserver). CLOUD:
``spec_pickle`` would have to. ``__getstate__`` may leave out parts that are held. ``__reduce__`` may send parts that are not held.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable
from pickle import PicklingError
from typing import Any

import numpy as np
import torch

from stoker._pickling.instances import own_dict
from stoker._tools.doctor.scanning import kinds, large_containers
from stoker._tools.doctor.scanning.attribute_totals import (
    AttributeAccount,
    atom_bytes,
    copied_bytes,
    own_bytes,
)
from stoker._tools.doctor.scanning.holdings import closed_over, globals_of, held_by
from stoker._tools.doctor.scanning.kinds import ATOMS
from stoker._tools.doctor.scanning.leaves import Leaves, described
from stoker._tools.doctor.scanning.paths import WalkNode, WalkStep, attribute_step, item_step
from stoker._tools.doctor.scanning.reduction import Reductions, parts

HELD, PLAIN, CLOUD = 1, 2, 4
SENT = PLAIN | CLOUD
FEW = 64
"""Containers up to this length are looked at item by item, each with a path and an account of its own."""

_MANY = 2000
"""Of containers up to this length every item is entered that is no plain value."""

_SAMPLED = 256
_FEW_INSIDE, _SAMPLED_INSIDE = 8, 16
"""The same in containers that lie in a large one."""

_WEIGHED, _WEIGHED_INSIDE = 1024, 32
"""Plain values of a large container that are weighed; fewer when it lies in a larger one."""

_LONG_INSIDE = 4096
"""Containers in large ones are left out of the trial pickle when they are longer than this."""

_TEXT_BYTES = 1 << 16
"""A text this long is worth a line of its own."""

_OBJECTS = 40_000
"""So many objects are looked at, the nearest first."""

_SLOW = 20_000
"""When that many were looked at, samples get smaller."""

_FORK_AWARE = frozenset({"logging", "multiprocessing"})
"""Modules that make their locks and threads anew after a fork: what their objects hold is no hazard."""

_WITH_STATE = 3
"""A class that is sent by value is made first and filled from a state; one of the interpreter's own goes by its name."""

_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_LIBRARIES = frozenset(
    {"builtins", "collections", "functools", "numpy", "torch", "stoker", "typing", "abc", "enum"}
)


class Walk:
    """One walk over some roots. Called inside a spawning context; changes nothing."""

    def __init__(self, roots: Iterable[tuple[str, Any]]) -> None:
        self.reductions = Reductions()
        self.leaves = Leaves()
        self.accounts: list[AttributeAccount] = []
        self.refused: list[tuple[WalkNode, BaseException, int]] = []
        """What pickling refuses, why, and in which ways (PLAIN, CLOUD)."""
        self.local: list[WalkNode] = []
        """Functions and classes that cannot be found by their name."""
        self.sampled: dict[int, tuple[WalkNode, list[Any], int, bool]] = {}
        """Large containers by id: a sample of their items, how many there are, and whether it is made of pairs."""
        self.deepest: WalkNode | None = None
        self.seen = 0
        self.complete = True
        self.about = False
        self._nodes: dict[int, WalkNode] = {}
        self._queue: deque[tuple[int, WalkNode]] = deque()
        self._budget = large_containers.InspectionBudget()
        for name, obj in roots:
            node = self._push(None, WalkStep("text", name), obj, HELD | SENT)
            if node is not None:
                self._of_class(node)
        self._run()

    def _run(self) -> None:
        depth = -1
        while self._queue:
            level, node = self._queue.popleft()
            if self.seen >= _OBJECTS:
                self.complete = False
                break
            self.seen += 1
            if level > depth:
                depth, self.deepest = level, node
            self._level = level
            try:
                self._visit(node)
            except Exception:  # of an object that is not what its type says: the others are looked at
                self.complete = False
        self._queue.clear()

    def _push(
        self,
        parent: WalkNode | None,
        step: WalkStep,
        obj: Any,
        ways: int,
        *,
        weight: float = 1.0,
        bulky: bool = False,
    ) -> WalkNode | None:
        """Note an object that ``parent`` leads to. Plain values are booked with their holder and not looked at."""
        if not ways:
            return None
        if type(obj) in ATOMS and parent is not None:
            if ways & HELD:
                self._book_atom(parent, step, obj)
            return None
        node = self._nodes.get(id(obj))
        if node is None:
            node = WalkNode(obj, parent, step, ways, weight, bulk=bulky)
            self._nodes[id(obj)] = node
            if bulky and parent is not None and parent.account is not None:
                node.account = parent.account
        elif node.ways | ways == node.ways:
            return None
        else:
            node.ways |= ways
        self._queue.append((0 if parent is None else self._level + 1, node))
        return node

    def _book_atom(self, parent: WalkNode, step: WalkStep, obj: Any) -> None:
        size = atom_bytes(obj)
        if size > _TEXT_BYTES and step.how == "attribute" and not parent.bulk:
            node = WalkNode(obj, parent, step, parent.ways)
            account = AttributeAccount(node, type(obj).__name__)
            account.book(size * parent.weight, parent.weight, 4096)
            self.accounts.append(account)
        elif parent.account is not None:
            parent.account.book(
                size * parent.weight, parent.weight if size else 0, min(size, 4096) * parent.weight
            )

    def _visit(self, node: WalkNode) -> None:
        new = node.ways & ~node.done
        if not new:
            return
        obj, kind = node.obj, type(node.obj)
        if new & HELD and node.account is None:
            node.account = AttributeAccount(node, "")
            self.accounts.append(node.account)
        first = node.done == 0
        node.done = node.ways
        if self._is_leaf(node, first, new):
            return
        if new & HELD:
            size = own_bytes(obj)
            node.account.book(size * node.weight, node.weight, copied_bytes(obj, size) * node.weight)
            if node.account.node is node:
                node.account.kind = described(obj)
        if issubclass(kind, type):
            self._class(node, new)
        elif kind is types.FunctionType:
            self._function(node, new)
        elif issubclass(kind, _CONTAINERS) or kind is np.ndarray:
            self._container(node, new)
        else:
            self._instance(node, new)

    def _is_leaf(self, node: WalkNode, first: bool, new: int) -> bool:
        """Whether it is known by its type, and nothing in it is of interest."""
        verdict = self.leaves.take(node, first=first, held=bool(new & HELD))
        if verdict is None:
            return False
        if verdict.refusal is not None and new & verdict.refused_ways:
            self.refused.append((node, verdict.refusal, verdict.refused_ways))
        return not verdict.enter

    def _container(self, node: WalkNode, new: int) -> None:
        obj: Any = node.obj
        kind = type(obj)
        ways = new & HELD
        if kind in _CONTAINERS or kind is np.ndarray:
            ways = new
        else:
            ways |= self._instance(node, new)
        if kind is np.ndarray:
            values, keys, length = obj.ravel().tolist(), None, obj.size
        elif issubclass(kind, dict):
            values, keys, length = dict.values(obj), dict.keys(obj), dict.__len__(obj)
        else:
            base: Any = next(each for each in _CONTAINERS if issubclass(kind, each))
            values, keys, length = base.__iter__(obj), None, base.__len__(obj)
        if length > (_FEW_INSIDE if node.bulk else FEW):
            self._many(node, values, keys, length, ways)
            return
        if node.account is not None and node.account.node is node:
            node.account.items = length
        items = list(values)
        bulky = node.bulk or all(issubclass(type(each), np.ndarray | torch.Tensor) for each in items)
        for at, (key, value) in enumerate(zip(keys or range(length), items, strict=True)):
            if keys is not None:
                self._push(node, WalkStep("a key"), key, ways, weight=node.weight, bulky=bulky)
            self._push(node, self._item(obj, at, key), value, ways, weight=node.weight, bulky=bulky)

    def _item(self, obj: Any, at: int, key: Any) -> WalkStep:
        kind = type(obj)
        if issubclass(kind, dict):
            return item_step(key)
        if issubclass(kind, set | frozenset):
            return WalkStep("member")
        names = getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
        if type(names) is tuple and at < len(names) and type(names[at]) is str:
            return attribute_step(names[at])
        return (
            WalkStep("text", f".flat[{at}]") if kind is np.ndarray and obj.ndim > 1 else WalkStep("item", at)
        )

    def _many(self, node: WalkNode, values: Any, keys: Any, length: int, ways: int) -> None:
        obj = node.obj
        limit = _MANY if length <= _MANY else _SAMPLED
        if node.bulk or self.seen + len(self._queue) > _SLOW:
            limit = _SAMPLED_INSIDE
        sample = _WEIGHED_INSIDE if node.bulk else _WEIGHED
        found = large_containers.look(values, length, self._budget, keys=keys, limit=limit, sample=sample)
        sampled = not found.whole or any(pick.weight > 1 for pick in found.picks)
        if ways & HELD and node.account is not None:
            node.account.book(*(each * node.weight for each in found.atoms))
            node.account.about |= sampled or length > len(found.sample)
            if node.account.node is node:
                node.account.items = length
        self.about |= sampled
        apart = length > (_LONG_INSIDE if node.bulk else FEW)
        if ways & SENT and apart and found.sample and id(obj) not in self.sampled:
            self.sampled[id(obj)] = (node, found.sample, length, keys is not None)
        for pick in found.keys:
            self._push(node, WalkStep("a key"), pick.value, ways, weight=node.weight, bulky=True)
        for pick in found.picks:
            step = self._item(obj, pick.at, pick.key)
            self._push(node, step, pick.value, ways, weight=pick.weight * node.weight, bulky=True)

    def _instance(self, node: WalkNode, new: int) -> int:
        """Anything else: its attributes, and what pickling takes of it. Returns the ways in which items of a container travel."""
        obj = node.obj
        if new & HELD and str(type(obj).__module__).partition(".")[0] not in _FORK_AWARE:
            for step, value in held_by(obj):
                self._push(node, step, value, HELD, weight=node.weight, bulky=node.bulk)
        ways = 0
        if new & SENT:
            plain = self.reductions.plain(obj)
            cloud = self.reductions.cloud(obj)
            for found, way in ((plain, SENT),) if cloud is plain else ((plain, PLAIN), (cloud, CLOUD)):
                if new & way:
                    ways |= self._reduced(node, found, new & way)
        return ways

    def _reduced(self, node: WalkNode, found: Any, way: int) -> int:
        """What a reduction leads to; returns the way if items of a container are part of it."""
        if type(found) is str and not self.reductions.by_name(node.obj):
            found = PicklingError(f"it is not found as {found}")
        if isinstance(found, BaseException):
            self.refused.append((node, found, way))
        if type(found) is not tuple:
            return 0
        for step, value in parts(node.obj, found):
            self._push(node, step, value, way, weight=node.weight, bulky=node.bulk)
        return way if any(each is not None for each in found[3:5]) else 0

    def _function(self, node: WalkNode, new: int) -> None:
        function = node.obj
        if new & PLAIN and not self.reductions.by_name(function):
            self.local.append(node)
        for step, value in closed_over(function):
            self._push(node, step, value, new & HELD)
        if not new & CLOUD:
            return
        found = self.reductions.by_value(function)
        if isinstance(found, BaseException):
            self.refused.append((node, found, CLOUD))
        elif found is not None:
            for step, value in closed_over(function):
                self._push(node, step, value, CLOUD)
            for name, value in globals_of(found).items():
                self._push(node, WalkStep("global", name), value, CLOUD)

    def _class(self, node: WalkNode, new: int) -> None:
        if new & PLAIN and not self.reductions.by_name(node.obj):
            self.local.append(node)
        if not new & CLOUD:
            return
        found = self.reductions.by_value(node.obj)
        if isinstance(found, BaseException):
            self.refused.append((node, found, CLOUD))
        if type(found) is not tuple or len(found) < _WITH_STATE:
            return
        for name, value in vars(node.obj).items():
            if type(value) is not types.GetSetDescriptorType:
                self._push(node, attribute_step(name), getattr(value, "__func__", value), CLOUD)

    def _of_class(self, root: WalkNode) -> None:
        """What a root's class holds is inherited over a fork as well: a handle that all instances use."""
        self._level = 0
        kind = type(root.obj)
        own = own_dict(root.obj) or {}
        for cls in kind.__mro__:
            module = cls.__module__ if type(cls.__module__) is str else ""
            if module.partition(".")[0] in _LIBRARIES:
                continue
            for name, value in vars(cls).items():
                if name not in own and kinds.matters(value):
                    self._push(root, attribute_step(name), value, HELD)
                if type(value) is types.FunctionType:
                    self._of_module(root, attribute_step(name), value)

    def _of_module(self, root: WalkNode, step: WalkStep, method: Any) -> None:
        """The same for variables of the module that a method uses."""
        for name in method.__code__.co_names:
            value = method.__globals__.get(name)
            if kinds.matters(value):
                self._push(WalkNode(method, root, step), WalkStep("global", name), value, HELD)
