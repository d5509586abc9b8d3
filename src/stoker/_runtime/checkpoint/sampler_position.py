"""Opens a loader's samplers at any position without reading data, and reports where they are.

In order of preference a sampler is brought to a place by

1. ``__stoker_state__(taken, opening)``: a pure function of how it was opened and how much of it was handed over (our own);
2. ``state_dict`` and ``load_state_dict`` of the sampler, of its iterator or of both, taken as the sampler is pulled, since it
   runs ahead of what is handed over;
3. passing over its indices, with all generators as they stood when it was opened.

For torch's own BatchSampler 1 and 2 concern the sampler inside it.
"""

from __future__ import annotations

import copy
import itertools
import logging
import pickle
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

from torch.utils.data import BatchSampler

from stoker._runtime.checkpoint.state_format import SavedState
from stoker._runtime.plan.nested_samplers import layers
from stoker._runtime.protocol.worker_spec import is_stateful

_SEEKABLE: tuple[type, ...] = (type(iter(range(0))), type(iter([])), type(iter(())))


class IndexSource:
    """Owner: an iteration; used on its thread.

    ``opened`` is ``iter(sampler)`` of the outermost sampler, not yet pulled. ``every`` is how many pulls lie between two snapshots.
    ``plain`` tells that neither the sampler nor its iterator can have a state. ``batched``: what a batch sampler yields is counted
    by its rows; it is one sample to a loader without automatic batching.
    """

    def __init__(
        self, sampler: Any, opened: Iterator[Any], *, every: int, plain: bool, batched: bool = True
    ) -> None:
        self._chunks = SamplerBatches(sampler) if batched and type(sampler) is BatchSampler else None
        self._sampler = self._chunks.sampler if self._chunks is not None else sampler
        self._elastic = elastic_part(sampler)
        self.iterator: Iterator[Any] = only_pulled(opened)
        self._own_iterator: Any = opened
        self._every = every
        self._plain = plain
        self._pulls = 0
        self._unpicklable = False
        """Whether a state was asked for and could not be had."""
        self._noted = False
        self.before: list[Any] = []
        """What the sampler gave last before the place that was sought: batches of indices, or indices without batches."""
        self._opening: dict[str, Any] | None = None
        self.epoch: int | None = None
        """Which epoch the sampler counts, where it counts."""
        self._hidden = self._elastic is not None and self._elastic is not self._sampler
        """Whether a batch sampler of the user's stands before it: then it is not known how the two relate."""
        if self._elastic is not None and self._chunks is not None:
            self._use_chunks()
        elif not plain and self._chunks is not None:
            self.iterator = self._chunks.batches()
        # Behind a batch sampler it is opened when that one is first pulled.
        self.epoch = self._elastic._next_epoch if self._hidden else epoch_of(sampler)
        if self._elastic is not None and not self._hidden:
            self._opening = self._elastic.__stoker_state__(0)

    @property
    def after(self) -> Callable[[], bytes | None] | None:
        """To be called after every pull, for what the ticket should remember; None when there is nothing to remember."""
        if self._elastic is not None:
            return self._note_opening
        if self._parts():
            return self._snapshot
        # Of a sampler inside torch's BatchSampler the iterator is not there before the first pull.
        return self._snapshot if self._chunks is not None and not self._plain else None

    def seek(self, saved: SavedState, last: int = 0) -> None:
        """Go to where ``saved`` says. Called once, before anything is pulled. ``last``: how many items to keep in ``before``."""
        state = saved.sampler_state
        if self._elastic is not None and state is not None:
            if self._hidden:
                advance(self.iterator, saved.batches)
            return
        self._pulls = saved.batches  # snapshots fall on the same batches as if nothing had been loaded
        last = last if state is None else 0  # what a sampler's own state passes over is not seen
        if self._chunks is None:
            _tell(self._own_iterator, state)
            self._pass_over(self.iterator, saved.batches - saved.sampler_at, last)
            return
        inner = self._use_chunks()
        indices = only_pulled(inner)
        if state is None:
            self._pass_over(indices, saved.samples, last)
            self.before = [self.before]
        elif state.get("ended"):
            self._pass_the_end(inner, state)
        else:
            _tell(inner, state)
            size = saved.facts.batch_size or self._chunks.size
            advance(indices, (saved.batches - saved.sampler_at) * size)

    def _pass_over(self, iterator: Iterator[Any], count: int, last: int) -> None:
        kept = min(count, last)
        advance(iterator, count - kept)
        self.before = list(itertools.islice(iterator, kept))

    def _pass_the_end(self, inner: Any, state: dict[str, Any]) -> None:
        """Nothing is left of this epoch. A sampler that was put at its end has to get past it, or the next epoch is empty.

        One whose state already means the next epoch gives an index instead. Its state is then loaded once more.
        """
        self.iterator = iter(())
        if state.get("sampler") is None:
            return
        _tell(inner, state)
        if not list(itertools.islice(only_pulled(inner), 1)):
            return
        if isinstance(inner, GeneratorType):
            inner.close()  # now, because it may still change the sampler
        self._sampler.load_state_dict(copy.deepcopy(state["sampler"]))

    @property
    def restarts(self) -> bool:
        """Whether samples are counted from where the sampler was opened, not from the epoch's beginning."""
        return self._elastic is not None and not self._hidden

    @staticmethod
    def kept(saved: SavedState) -> tuple[int, bytes] | None:
        """The snapshot that a state was made with: good until there is a newer one."""
        if saved.sampler_state is None:
            return None
        return saved.sampler_at, pickle.dumps(saved.sampler_state)

    def begin(self) -> None:
        """Pull the first item now: a sampler draws from generators when it is first pulled, and they stand right only now."""
        first = list(itertools.islice(self.iterator, 1))
        self.iterator = itertools.chain(first, self.iterator)

    def state(self, batches: int, samples: int, snapshot: tuple[int, bytes] | None) -> tuple[Any, int]:
        """What to save of the sampler after so much was handed over, and after how many batches that was."""
        if self._elastic is not None:
            if self._opening is None:
                return None, 0
            taken, at = (0, 0) if self._hidden else (samples, batches)
            return self._elastic.__stoker_state__(taken, self._opening), at
        if snapshot is None:
            return None, 0
        return pickle.loads(snapshot[1]), snapshot[0]

    def _use_chunks(self) -> Any:
        assert self._chunks is not None
        inner = self._chunks.open()
        self.iterator = self._chunks.batches()
        return inner

    def _note_opening(self) -> bytes | None:
        """A sampler begins when it is first pulled: another loader over the same one may have come before."""
        if not self._noted:
            self._noted = True
            self._opening = self._elastic.__stoker_state__(0)
            self.epoch = self._elastic.epoch
        return None

    def _parts(self) -> dict[str, Any]:
        """What has a state of its own, now."""
        if self._unpicklable:
            return {}
        iterator = self._own_iterator if self._chunks is None else self._chunks.inner
        parts = {}
        if is_stateful(self._sampler):
            parts["sampler"] = self._sampler
        if iterator is not None and iterator is not self._sampler and is_stateful(iterator):
            parts["iterator"] = iterator
        return parts

    def _snapshot(self) -> bytes | None:
        self._pulls += 1
        if self._pulls % self._every:
            return None
        parts = self._parts()
        if not parts:
            return None
        try:
            states: dict[str, Any] = {name: part.state_dict() for name, part in parts.items()}
            if self._chunks is not None and self._chunks.ended:
                states["ended"] = True  # what the sampler says of itself may already mean the next epoch
            return pickle.dumps(states)
        except Exception as error:
            self._unpicklable = True
            logging.getLogger("stoker").warning(
                "the sampler's state_dict() cannot be saved (%r): on resume, the loader starts the sampler again and skips the "
                "batches that were delivered",
                error,
            )
            return None


class SamplerBatches:
    """What torch's BatchSampler does, with its sampler's iterator within reach."""

    def __init__(self, batch_sampler: BatchSampler) -> None:
        self.sampler: Any = batch_sampler.sampler
        self.size = batch_sampler.batch_size
        self._drop_last = batch_sampler.drop_last
        self.inner: Any = None
        self.ended = False
        """Whether the sampler has no more: its last batch was short."""

    def open(self) -> Any:
        """The sampler's iterator."""
        if self.inner is None:
            self.inner = iter(self.sampler)
        return self.inner

    def batches(self) -> Iterator[list[Any]]:
        """Lists of indices."""
        indices, size = only_pulled(self.open()), self.size
        while batch := list(itertools.islice(indices, size)):
            self.ended = len(batch) < size
            if self.ended and self._drop_last:
                return
            yield batch


def _tell(iterator: Any, state: dict[str, Any] | None) -> None:
    """Put a sampler's iterator where it was, if it said where."""
    if state is None or state.get("iterator") is None:
        return
    if not is_stateful(iterator):
        raise ValueError(
            f"the state that was loaded has one of the sampler's iterator, and {type(iterator).__name__} has no load_state_dict: "
            "give the loader the sampler it had, or begin the epoch anew"
        )
    iterator.load_state_dict(state["iterator"])


def prepare(sampler: Any, saved: SavedState) -> None:
    """Tell samplers what was saved of them. Called before they are opened."""
    inner: Any = sampler.sampler if type(sampler) is BatchSampler else sampler
    elastic = elastic_part(sampler)
    if saved.finished:
        return  # announced when it was loaded
    if elastic is not None:
        if saved.sampler_state is not None:
            elastic.__stoker_load__(saved.sampler_state)
        elif saved.sampler_epoch is not None:
            elastic.set_epoch(saved.sampler_epoch)
        return
    counting = counting_part(sampler)
    if counting is not None and saved.sampler_epoch is not None and counting.epoch != saved.sampler_epoch:
        logging.getLogger("stoker").warning(
            "the saved epoch has number %d, and the sampler was set to %d: it goes on with %d, as it was saved",
            saved.sampler_epoch, counting.epoch, saved.sampler_epoch,
        )  # fmt: skip
        counting.set_epoch(saved.sampler_epoch)
    state = saved.sampler_state
    if isinstance(state, dict) and state.get("sampler") is not None:
        inner.load_state_dict(state["sampler"])


def announce(sampler: Any, saved: SavedState) -> None:
    """A finished state was loaded: a sampler that counts by itself goes on counting from there, unless its user says otherwise."""
    elastic = elastic_part(sampler)
    if elastic is not None and saved.finished and saved.sampler_epoch is not None:
        elastic.set_epoch(saved.sampler_epoch)


def check(sampler: Any, saved: SavedState) -> None:
    """ValueError when a sampler could not be told what was saved of it, as far as that can be known without telling it."""
    state = saved.sampler_state
    if state is None:
        return
    elastic = elastic_part(sampler)
    if elastic is not None:
        copy.copy(elastic).load_state_dict(state)
        return
    if not isinstance(state, dict) or not state.keys() <= {"sampler", "iterator", "ended"}:
        raise ValueError(
            "this state is damaged: 'sampler_state' should hold states of a sampler and its iterator"
        )
    inner = sampler.sampler if type(sampler) is BatchSampler else sampler
    if state.get("sampler") is not None and not is_stateful(inner):
        raise ValueError(
            f"this state does not fit this loader: its sampler had a state (state_dict), and {type(inner).__name__} has no "
            "load_state_dict: give the loader the sampler it had, or begin the epoch anew"
        )


def is_plain(sampler: Any) -> bool:
    """Whether a sampler is one of torch's: they have no state of their own, and neither have their iterators."""
    inner = sampler.sampler if type(sampler) is BatchSampler else sampler
    return type(inner).__module__.startswith("torch.utils.data.")


def elastic_part(sampler: Any) -> Any:
    """The sampler, or the one inside it, that can tell its state after any number of samples; None when there is none."""
    for part in layers(sampler):
        if callable(getattr(part, "__stoker_state__", None)):
            return part
    return None


def is_elastic(sampler: Any, *, batched: bool) -> bool:
    """Whether any number of ranks can go on: not where a batch sampler of the user's stands between, whose ways are not known."""
    inner = sampler.sampler if batched and type(sampler) is BatchSampler else sampler
    return elastic_part(sampler) is inner


def counting_part(sampler: Any) -> Any:
    """The sampler, or the one inside it, that counts epochs."""
    for part in layers(sampler):
        if isinstance(getattr(part, "epoch", None), int) and callable(getattr(part, "set_epoch", None)):
            return part
    return None


def distributed_part(sampler: Any) -> Any:
    """The sampler, or the one inside it, that gives every rank its share."""
    for part in layers(sampler):
        if all(isinstance(getattr(part, name, None), int) for name in ("rank", "num_replicas")):
            return part
    return None


def epoch_of(sampler: Any) -> int | None:
    """The epoch that a sampler counts."""
    part = counting_part(sampler)
    return None if part is None else part.epoch


def only_pulled(iterator: Iterator[Any]) -> Iterator[Any]:
    """The same items by ``next()`` alone, as torch takes them: the ``__iter__`` of an iterator may start it anew."""
    if type(iterator) in _SEEKABLE or isinstance(iterator, GeneratorType):
        return iterator
    return map(next, itertools.repeat(iterator))


def advance(iterator: Iterator[Any], count: int) -> None:
    """Pass over items of an iterator that was not pulled yet; in one step where its kind allows it."""
    if count <= 0:
        return
    if type(iterator) in _SEEKABLE:
        iterator.__setstate__(count)  # type: ignore[attr-defined]
        return
    next(itertools.islice(iterator, count, count), None)
