"""Inspects large containers: the type of every item at the speed of C, and a sample of the items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, NamedTuple

from stoker._tools.doctor.scanning.attribute_totals import atom_bytes, copied_bytes
from stoker._tools.doctor.scanning.kinds import ATOMS

_CHUNK = 65536
_PICKED_A_CHUNK = 16
_NESTED = (tuple, list, dict)


class PickedItem(NamedTuple):
    """An item to look at: its place, its key in a dict, and the number of items it stands for."""

    at: int
    key: Any
    value: Any
    weight: float


@dataclass(slots=True)
class InspectionBudget:
    """How many items may still be looked at. What is beyond is known from the part before it."""

    items: int = 20_000_000
    inner: int = 6_000_000


@dataclass(slots=True)
class Bulk:
    """What a large container has in it."""

    length: int
    kinds: dict[type, int] = field(default_factory=dict)
    """Types of the items, with their numbers where several kinds are mixed."""
    picks: list[PickedItem] = field(default_factory=list)
    keys: list[PickedItem] = field(default_factory=list)
    """Keys that are no plain values."""
    atoms: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Bytes, objects and copied bytes of numbers and texts, keys among them."""
    sample: list[Any] = field(default_factory=list)
    """Some items, or pairs of keys and items, from everywhere."""
    whole: bool = True
    """Whether every item's type was looked at."""


def look(
    values: Iterable[Any],
    length: int,
    budget: InspectionBudget,
    *,
    keys: Iterable[Any] | None,
    limit: int,
    sample: int,
) -> Bulk:
    """Look at a container with many items. About ``limit`` of each kind are picked, and ``sample`` plain values are weighed."""
    found = Bulk(length)
    items, names = iter(values), None if keys is None else iter(keys)
    chosen: dict[type, list[tuple[int, Any, Any]]] = {}
    inner: set[type] = set()
    looked = 0
    while looked < length and budget.items > 0:
        chunk = list(islice(items, _CHUNK))
        if not chunk:
            break
        here = None if names is None else list(islice(names, _CHUNK))
        budget.items -= len(chunk)
        _count(
            chunk,
            here,
            looked,
            found,
            chosen,
            inner,
            budget,
            max(_PICKED_A_CHUNK, limit * len(chunk) // length),
        )
        step = max(1, -(-length // sample))
        found.sample += chunk[::step] if here is None else zip(here[::step], chunk[::step], strict=True)
        if here is not None:
            _unusual_keys(here, found, limit)
        looked += len(chunk)
    found.whole = looked >= length
    share = length / max(looked, 1)
    for kind, picked in chosen.items():
        distinct = {id(value) for _, _, value in picked}
        total = found.kinds[kind] * share
        weight = total / len(picked) if len(picked) < total and 2 * len(distinct) > len(picked) else 1.0
        found.picks += [PickedItem(at, key, value, weight) for at, key, value in picked]
    found.kinds = {kind: round(count * share) for kind, count in found.kinds.items()}
    found.atoms = _weigh(found, length, keyed=keys is not None)
    return found


def _count(
    chunk: list[Any], names: list[Any] | None, start: int, found: Bulk, chosen: dict[type, list[tuple[int, Any, Any]]],
    inner: set[type], budget: InspectionBudget, quota: int,
) -> None:  # fmt: skip
    kinds = set(map(type, chunk))
    if len(kinds) == 1:
        kind = next(iter(kinds))
        found.kinds[kind] = found.kinds.get(kind, 0) + len(chunk)
        places: dict[type, Any] = {} if kind in ATOMS else {kind: range(len(chunk))}
    else:
        types = list(map(type, chunk))
        places = {}
        for kind in kinds:
            found.kinds[kind] = found.kinds.get(kind, 0) + types.count(kind)
            if kind not in ATOMS:
                places[kind] = [at for at, each in enumerate(types) if each is kind]
    for kind, where in places.items():
        picked = list(where[:: max(1, len(where) // quota)])[:quota] if len(where) > quota else list(where)
        if kind in _NESTED:
            picked = list(dict.fromkeys([*picked, *_odd_ones(chunk, where, kind, inner, budget)]))
        into = chosen.setdefault(kind, [])
        into += [(start + at, None if names is None else names[at], chunk[at]) for at in picked]


def _odd_ones(
    chunk: list[Any], where: Any, kind: type, inner: set[type], budget: InspectionBudget
) -> list[int]:
    """Places of items that hold something of a type that was in none before."""
    if budget.inner <= 0:
        return []
    items = chunk if len(where) == len(chunk) else [chunk[at] for at in where]
    budget.inner -= sum(map(len, items))
    kinds = set(map(type, chain.from_iterable(map(dict.values, items) if kind is dict else items)))
    new = kinds - inner - ATOMS
    inner |= new
    found = []
    for odd in new:
        for at in where:
            inside = chunk[at].values() if kind is dict else chunk[at]
            if any(type(each) is odd for each in inside):
                found.append(at)
                break
    return found


def _unusual_keys(names: list[Any], found: Bulk, limit: int) -> None:
    if len(found.keys) < limit and not set(map(type, names)) <= ATOMS:
        unusual: Iterator[Any] = (key for key in names if type(key) not in ATOMS)
        found.keys += [PickedItem(0, None, key, 1.0) for key in islice(unusual, _PICKED_A_CHUNK)]


def _weigh(found: Bulk, length: int, *, keyed: bool) -> tuple[float, float, float]:
    """A value that is there again and again counts once, as far as the sample shows it."""
    if not found.sample:
        return 0.0, 0.0, 0.0
    columns = list(zip(*found.sample, strict=True)) if keyed else [found.sample]
    nbytes = objects = copied = 0.0
    for column in columns:
        atoms = [each for each in column if type(each) in ATOMS and atom_bytes(each)]
        distinct = {id(each): each for each in atoms}
        sizes = [atom_bytes(each) for each in distinct.values()]
        factor = length / len(column) if 2 * len(distinct) > len(atoms) else 1.0
        nbytes += factor * sum(sizes)
        objects += factor * len(sizes)
        copied += factor * sum(copied_bytes("", size) for size in sizes)
    return nbytes, objects, copied
