"""Times the batch that torch's fetcher makes, in a worker or in the parent. Imported by workers: light.

torch's own fetcher does the work. It takes the batch's indices one after the other and calls the collate function in the end:
both are handed to it in a form that looks at the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from numbers import Integral
from types import WrapperDescriptorType
from typing import Any

_clock = time.monotonic_ns

_SLOW_ROW_NS = 20_000
"""Rows are timed where they take longer than this on average, as stoker's own workers do."""

_MOST_INDEX = 1 << 62


class TaskClock:
    """Of the batch that one thread is making now. 0: did not happen; -1: not known."""

    def __init__(
        self,
        dataset: Any,
        collate_fn: Callable[[Any], Any],
        *,
        batched: bool,
        works_on: Callable[[int, int], None] | None = None,
    ) -> None:
        """``works_on`` is called with an index, and how many rows begin there, as a batch and its timed rows begin."""
        self._collate_fn = collate_fn
        self.works_on = works_on
        self._batched = batched
        self._timeable = batched and fetches_singly(dataset)
        self._slow = False
        self.begin(0)

    def begin(self, now_ns: int) -> None:
        """A batch begins."""
        self.received_ns = now_ns
        self.fetched_ns = self.collated_ns = self.slow_ns = self.rows = 0
        self.slow_row = self.slow_index = -1

    def indices(self, indices: Any) -> Any:
        """The batch's indices, for torch's fetcher: as they are, or so that rows are timed."""
        if self.works_on is not None:
            batch = indices if type(indices) is list else [indices]
            self.works_on(number_of(batch[0]) if batch else -1, len(batch))
        if self._slow and type(indices) is list:
            return _Timed(indices, self)
        return indices

    def collate(self, samples: Any) -> Any:
        """What the fetcher calls in place of the collate function."""
        now_ns = self.fetched_ns = _clock()
        self.rows = rows = (len(samples) if type(samples) is list else 0) if self._batched else 1
        self._slow = self._timeable and now_ns - self.received_ns > _SLOW_ROW_NS * rows
        batch = self._collate_fn(samples)
        self.collated_ns = _clock()
        return batch


class _Timed(list[Any]):
    """Indices that note how long it took until the next one was asked for."""

    def __init__(self, indices: list[Any], clock: TaskClock) -> None:
        super().__init__(indices)
        self._task = clock

    def __iter__(self) -> Iterator[Any]:
        task, works_on = self._task, self._task.works_on
        before_ns = _clock()
        for row, index in enumerate(super().__iter__()):
            if works_on is not None:
                works_on(number_of(index), 1)
            yield index
            now_ns = _clock()
            if now_ns - before_ns > task.slow_ns:
                task.slow_row, task.slow_ns, task.slow_index = row, now_ns - before_ns, number_of(index)
            before_ns = now_ns


def fetches_singly(dataset: Any) -> bool:
    """Whether torch's fetcher takes this dataset's rows one by one, as far as can be told without running its code.

    A dataset with ``__getitems__`` is given the indices themselves, and they must be what they were.
    """
    kind: Any = type(dataset)
    if hasattr(kind, "__getattr__") or not isinstance(kind.__getattribute__, WrapperDescriptorType):
        return False
    return not hasattr(kind, "__getitems__") and "__getitems__" not in getattr(dataset, "__dict__", {})


def number_of(index: Any) -> int:
    """A dataset's index as a number that fits in a word, else -1."""
    number = index if type(index) is int else int(index) if isinstance(index, Integral) else -1
    return number if 0 <= number < _MOST_INDEX else -1
