"""An IterableDataset read by several workers, and once without any: what came twice, and how many items each gave."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamReading:
    """What one reader got. ``ended``: whether the stream came to its end; else the time or the number of items was up."""

    items: int
    ended: bool


@dataclass(frozen=True, slots=True)
class BrokenItem:
    """An item that raised while the stream was read without workers."""

    item: int
    """Its number."""
    kind: str
    text: str
    after: str
    """What the iterator did when it was asked for the next item: "ended", "raised" or "went on"."""


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """Workers are numbered as torch's loader numbers them, and were seeded alike; each was given about a second."""

    workers: tuple[StreamReading, ...]
    alone: StreamReading
    """Read without workers."""
    repeated: int = 0
    """Items of the workers that another of them had given already, where items can be told apart."""
    alike: bool = False
    """Whether all workers gave the same items in the same order, as far as they were read, and not all items are the same."""
    example: tuple[int, int, int, int] | None = None
    """A repeated item: worker and number of the item there, another worker and number."""
    declared: int | None = None
    """len(dataset)."""
    broken: BrokenItem | None = None
    world: int = 1
    """How many ranks were assumed for ``ranks``: the environment's number, or 2 when the dataset only looks at its rank."""
    ranks: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Some ranks, each with the items of its workers; () when ranks were not tried or a stream did not end."""

    ranks_alike: bool = False
    """Whether those ranks gave mostly the same items, in whatever order, and not all items are the same."""
    world_known: bool = False
    """Whether the environment or the dataset says how many ranks there are; else 2 were assumed."""

    @property
    def items(self) -> int:
        """Return the items of all workers together."""
        return sum(each.items for each in self.workers)

    @property
    def ended(self) -> bool:
        """Whether all workers came to the end: numbers are then those of an epoch."""
        return all(each.ended for each in self.workers)

    @property
    def whole(self) -> bool:
        """Whether every worker gave as many items as the whole stream has without workers."""
        return (
            self.ended
            and self.alone.ended
            and self.alone.items > 0
            and len(self.workers) > 1
            and all(each.items == self.alone.items for each in self.workers)
        )
