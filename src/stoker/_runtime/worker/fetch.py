"""Fetches samples of map-style datasets: every executor gets every sample through a ``Fetcher``.

    single     fetch = fetcher.bind(); fetch(index)              rows of a batch, parts, threads, replacements, batch_size=None
    batched    fetch = fetcher.bind_batched(); fetch(indices)    datasets with ``__getitems__``

A ``stoker.cache`` keeps samples behind ``dataset[index]`` by itself. ``StoreFetcher`` saves a copy of each: it hands out samples
that lie in the store, to torch's own collation, which copies them into the batch. Iterable datasets have no index; ``stream.py``
reads those.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from torch.utils.data import Subset

from stoker._runtime.protocol.worker_spec import WorkerSpec
from stoker._runtime.worker import collation


class Fetcher:
    """Fetches samples of one map-style dataset. Owner: a batch maker.

    Both methods are called on the batch maker's thread. The function of ``bind`` may be called on several threads at once.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._found: Any = _NOT_YET
        self._fetch: Callable[[Any], Any] = _getter(dataset)

    def bind(self) -> Callable[[Any], Any]:
        """Return the function that does ``dataset[index]``. Call this once per range of rows, not once per sample.

        The method is looked up on the type, as ``dataset[index]`` does. It is looked up anew for each range, because user code
        may replace it. A bound method costs no more than ``dataset[index]``; ``operator.getitem`` covers all other types.
        """
        found = getattr(type(self._dataset), "__getitem__", None)
        if found is not self._found:
            self._found, self._fetch = found, _getter(self._dataset)
        return self._fetch

    def bind_batched(self) -> Callable[[Any], Any] | None:
        """Return the dataset's ``__getitems__``; None when samples are fetched one by one. Called once, by the constructor."""
        return batch_getter(self._dataset)


class StoreFetcher(Fetcher):
    """Fetches samples of a cached dataset, or of a plain Subset of one, without copying them out of the store.

    Only for torch's own collation: it copies every tensor and array and keeps none.
    """

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset)
        self._cached, self._indices = dataset, None
        if type(dataset) is Subset:
            self._cached, self._indices = dataset.dataset, dataset.indices

    def bind(self) -> Callable[[Any], Any]:
        fetch: Callable[[Any], Any] = self._cached.__stoker_views__()
        if self._indices is None:
            return fetch
        place = self._indices.__getitem__
        return lambda index: fetch(place(index))


def fetcher_for(spec: WorkerSpec) -> Fetcher:
    """Return the fetcher for a worker's dataset: without a copy where torch's own collation makes one anyway."""
    dataset = spec.dataset
    inner = dataset.dataset if type(dataset) is Subset else dataset
    copied = spec.own_collate and spec.auto_collation and not spec.collate_map and collation.is_stock()
    # Asked of the class itself: a subclass may have another ``__getitem__``. The cache's modules are not imported for that.
    return StoreFetcher(dataset) if copied and "__stoker_views__" in vars(type(inner)) else Fetcher(dataset)


_NOT_YET = object()


def _getter(dataset: Any) -> Callable[[Any], Any]:
    for kind in type(dataset).__mro__:
        found = kind.__dict__.get("__getitem__")
        if found is not None:
            if type(found) is FunctionType:
                return MethodType(found, dataset)
            break
    return partial(operator.getitem, dataset)


def batch_getter(dataset: Any) -> Callable[[Any], Any] | None:
    """Return the dataset's ``__getitems__``, which fetches a whole batch; None where rows are fetched one by one.

    torch's Subset has one that fetches rows one by one. It counts only if the dataset inside has one of its own.
    """
    found = getattr(dataset, "__getitems__", None)
    while found is not None and _is_plain(dataset):
        dataset = dataset.dataset
        if not callable(getattr(dataset, "__getitems__", None)):
            return None
    return found


def _is_plain(dataset: Any) -> bool:
    kind = type(dataset)
    return (
        issubclass(kind, Subset)
        and kind.__getitem__ is Subset.__getitem__
        and kind.__getitems__ is Subset.__getitems__
    )
