"""Turns a walk into the fact: findings by path, with similar ones in one container reported once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from stoker._pickling import remedies
from stoker._tools.doctor.facts.scan import (
    Handle,
    HeldResource,
    LocalCode,
    OddTensor,
    Preload,
    ScanFacts,
    StoredGenerator,
    Unsendable,
)
from stoker._tools.doctor.scanning.attribute_totals import largest
from stoker._tools.doctor.scanning.kinds import name_of
from stoker._tools.doctor.scanning.leaves import is_global_generator
from stoker._tools.doctor.scanning.paths import WalkNode, spell
from stoker._tools.doctor.scanning.pickle_cost import PickleTrial
from stoker._tools.doctor.scanning.walk import CLOUD, PLAIN, Walk

_MOST = 50
_PARTS = 20
_TOO_DEEP = "It is nested too deeply to be pickled: keep it flat."
_LONG = 300

T = TypeVar("T")


def summarise(
    walk: Walk,
    trial: PickleTrial,
    *,
    preloads: tuple[Preload, ...],
    listed_indices: int | None,
    room_bytes: int | None,
    scan_s: float,
) -> ScanFacts:
    """Return all of it as plain values."""
    lists: dict[str, list[Any]] = {
        "unsendable": _refused(walk, trial),
        "local_code": _locals(walk.local),
        "handles": _grouped(
            (
                node,
                Handle(
                    "", name_of(type(node.obj)), found.what, found.name, found.sendable, not node.ways & PLAIN
                ),
            )
            for node, found in walk.leaves.handles
        ),
        "held": _grouped(
            (
                node,
                HeldResource(
                    "", name_of(type(node.obj)), found.what, found.live, not node.ways & PLAIN, found.threads
                ),
            )
            for node, found in walk.leaves.held
        ),
        "generators": _grouped(
            (node, StoredGenerator("", name_of(type(node.obj)), is_global_generator(node.obj)))
            for node in walk.leaves.generators
        ),
        "odd_tensors": _grouped((node, _odd(node.obj)) for node in walk.leaves.odd),
    }
    private = [each for each in walk.accounts if each.backing == "private"]
    sent = [each for each in walk.leaves.tensors if each[0].ways & PLAIN]
    storages = {address: (node.weight, nbytes) for node, address, nbytes in sent if nbytes}
    most = max(walk.accounts, key=lambda each: each.tensors, default=None)
    return ScanFacts(
        **{name: tuple(found[:_MOST]) for name, found in lists.items()},
        left_out=sum(max(0, len(found) - _MOST) for found in lists.values()),
        parts=largest(walk.accounts, _PARTS),
        preloads=preloads,
        tensors=round(sum(node.weight for node, _, _ in sent)),
        storages=round(sum(weight for weight, _ in storages.values())),
        tensor_bytes=round(sum(weight * nbytes for weight, nbytes in storages.values())),
        most_tensors=spell(most.node) if most is not None and most.tensors else "",
        array_bytes=round(
            sum(nbytes * node.weight for node, nbytes in walk.leaves.arrays if node.ways & PLAIN)
        ),
        nbytes=round(sum(each.nbytes for each in private)),
        objects=round(sum(each.objects for each in private)),
        copied_bytes=round(sum(each.copied_bytes for each in private)),
        pickle_bytes=trial.nbytes,
        pickle_s=trial.seconds,
        listed_indices=listed_indices,
        room_bytes=room_bytes,
        about=walk.about,
        complete=walk.complete,
        seen=walk.seen,
        scan_s=scan_s,
    )


def _refused(walk: Walk, trial: PickleTrial) -> list[Unsendable]:
    ways: dict[int, int] = {}
    first: dict[int, tuple[WalkNode, BaseException]] = {}
    for node, error, refused in walk.refused:
        ways[id(node)] = ways.get(id(node), 0) | (refused & node.ways)
        first.setdefault(id(node), (node, error))
    found = _grouped(
        (
            node,
            Unsendable(
                "", type(node.obj).__name__, _short(error), _remedy(node.obj, error), bool(ways[key] & CLOUD)
            ),
        )
        for key, (node, error) in first.items()
        if ways[key]
    )
    if trial.too_deep and walk.deepest is not None:
        kind = type(walk.deepest.obj).__name__
        found.append(
            Unsendable(spell(walk.deepest), kind, "maximum recursion depth exceeded", _TOO_DEEP, True)
        )
    return found


def _remedy(obj: Any, error: BaseException) -> str:
    try:
        return remedies.remedy(obj, error if isinstance(error, Exception) else RuntimeError(str(error)))
    except Exception:  # an object that even answers what it is by raising
        return ""


def _local(node: WalkNode) -> LocalCode:
    obj = node.obj
    code = getattr(obj, "__code__", None)
    name = str(getattr(obj, "__qualname__", ""))
    what = "class" if isinstance(obj, type) else "function"
    kind = "lambda" if name.endswith("<lambda>") else f"local {what}" if "<locals>" in name else what
    site = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    at = node.parent if node.step.how == "class" and node.parent is not None else node
    return LocalCode(spell(at), kind, name, site)


def _odd(tensor: Any) -> OddTensor:
    return OddTensor(
        "",
        str(tensor.device),
        bool(tensor.requires_grad),
        bool(tensor.is_leaf),
        tensor.numel() * tensor.element_size(),
    )


def _grouped(found: Iterable[tuple[WalkNode, T]]) -> list[T]:
    """One line for all that are alike in one container, with the path of the first and their number."""
    groups: dict[Any, tuple[WalkNode, Any, float]] = {}
    for node, fact in found:
        together = node.parent is not None and node.step.how in ("item", "key", "value", "member", "a key")
        key = (id(node.parent), _alike(fact)) if together else id(node)
        first, told_first, count = groups.get(key, (node, fact, 0.0))
        groups[key] = (first, told_first, count + node.weight)
    return [replace(fact, path=spell(node), count=round(count)) for node, fact, count in groups.values()]


def _alike(fact: Any) -> Any:
    return (type(fact), fact.kind if hasattr(fact, "kind") else fact.device, getattr(fact, "error", None))


def _locals(nodes: Iterable[WalkNode]) -> list[LocalCode]:
    """Functions that one piece of code made are told once."""
    distinct = {id(getattr(node.obj, "__code__", node.obj)): node for node in reversed(list(nodes))}
    return [_local(node) for node in reversed(distinct.values())]


def _short(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = ""
    text = f"{type(error).__name__}: {text}" if not isinstance(error, TypeError) else text
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"
