"""Names loaders as one would point at them, the same in every tool. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

UNNAMED = "loader"
"""What a loader is called that nobody named."""
_MOST_NAME = 40
_ORDERS = {"RandomSampler": "shuffled", "SequentialSampler": "in order"}


class NamedLoader(NamedTuple):
    """What a loader can be told by. Loaders of several ``place``s (a process, say) are not compared."""

    name: str
    dataset: str
    site: str | None
    sampler: str
    place: object = None


def title(name: str, dataset: str, site: str | None) -> str:
    """ "loader of Images (train.py:31)"."""
    name = name if len(name) <= _MOST_NAME else name[: _MOST_NAME - 1] + "…"
    if name == UNNAMED:
        name = f"loader of {_plain(dataset)[:_MOST_NAME]}"
    return f"{name} ({site})" if site else name


def distinct(loaders: Sequence[NamedLoader]) -> list[str]:
    """Their names. Those of one name, dataset class and line were made by a helper function: their order tells them apart, or
    else a number."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, each in enumerate(loaders):
        groups.setdefault((each.place, each.name, each.dataset, each.site), []).append(number)
    names = [each.name for each in loaders]
    for group in (each for each in groups.values() if len(each) > 1):
        orders = [_order(loaders[place]) for place in group]
        for number, (place, order) in enumerate(zip(group, orders, strict=True), 1):
            told = order if orders.count(order) == 1 else f"number {number}"
            names[place] = _with(loaders[place], told)
    return names


def _order(loader: NamedLoader) -> str:
    return _ORDERS.get(loader.sampler, loader.sampler or "no sampler")


def _with(loader: NamedLoader, told: str) -> str:
    plain, _, rank = loader.name.partition(", rank ")
    if plain == UNNAMED:
        plain = f"loader of {_plain(loader.dataset)}"
    return f"{plain}, {told}" + (f", rank {rank}" if rank else "")


def _plain(dataset: str) -> str:
    return dataset.removeprefix("__main__.")
