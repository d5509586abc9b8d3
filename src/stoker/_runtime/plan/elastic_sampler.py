"""A sampler for ranks whose number may change in mid-epoch.

There is one order of samples per epoch, whatever the number of ranks. The rank ``r`` of ``n`` takes every ``n``-th position from
``start + r`` on, where ``start`` is how far the epoch had come when it began to iterate. So a state is one number, the same on all
ranks, and any number of ranks goes on from there.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import distributed
from torch.utils.data import DistributedSampler

from stoker._runtime.plan import elastic_state
from stoker._runtime.plan.elastic_state import ElasticProgress
from stoker._runtime.plan.selection import Selection
from stoker._runtime.scheduler.row_ranges import mix

FIRST_BLOCK, LARGEST_BLOCK = 64, 16384
"""Samples of one rank that are computed at a time: few at first, so that the first index comes at once."""


class ElasticDistributedSampler(DistributedSampler[int]):
    """torch's ``DistributedSampler`` by type and arguments, with a state that any number of ranks can resume from.

    Every ``iter()`` begins the next epoch; call ``set_epoch`` only to choose another one. The length of the dataset is read at
    every ``iter()``. Iterators are independent of each other. Used on the thread that iterates.

    Args:
        dataset: The dataset whose indices are divided among the ranks. Only its length is used.
        num_replicas: The number of ranks. Default: from the process group, else torchrun's environment, else one.
        rank: The number of this rank. Default: from the same source.
        shuffle: As in torch. The order differs from torch's: it is computed during iteration, in constant memory.
        seed: The same on all ranks.
        drop_last: False: the order is padded from its beginning until all ranks get equally many samples. True: the remainder
            that cannot be divided evenly is left out.
        weights: Draw with replacement, in proportion to these.
        subset: Indices to choose from instead of the whole dataset: any sequence. It is not copied.
        num_samples: How many to draw by weight in an epoch. Default: the number of weights.
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        weights: Any = None,
        subset: Any = None,
        num_samples: int | None = None,
    ) -> None:
        # Not torch's __init__: it wants a process group, and reads the length once and for all.
        if weights is not None and not shuffle:
            raise ValueError("weights draw at random, which shuffle=False excludes: leave one of them out")
        if num_samples is not None:
            if weights is None:
                raise ValueError("num_samples says how many to draw by weight, and there are no weights")
            if type(num_samples) is not int or num_samples <= 0:
                raise ValueError(f"num_samples should be a positive integer, but got {num_samples!r}")
        self.dataset = dataset
        self.num_replicas, self.rank = resolve_ranks(num_replicas, rank)
        self.shuffle = bool(shuffle)
        self.seed = operator.index(seed)
        self.drop_last = bool(drop_last)
        self._selection = Selection(dataset, subset, weights, num_samples)
        self._epoch = 0
        self._resumed: ElasticProgress | None = None
        """Loaded and not yet iterated: where the next iteration begins."""
        self._pass: _Pass | None = None
        self._announced = True
        """Whether ``_epoch`` is that of the next iteration, not of the latest."""

    @property
    def epoch(self) -> int:
        """The epoch of the iteration opened last; of the next one after ``set_epoch`` or ``load_state_dict``."""
        return self._epoch if self._pass is None or self._pass.begin is not None else self._next_epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Let the next ``iter()`` begin this epoch. The epoch that a loaded state is in the middle of goes on from there."""
        number = operator.index(epoch)
        if self._resumed is not None and self._resumed.epoch != number:
            self._resumed = None
        self._epoch, self._announced = number, True

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """Samples of a whole epoch on this rank, as the dataset is now."""
        return self._share_of(self._selection.facts().length)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """Samples of a whole epoch on all ranks together, padding included."""
        return self.num_samples * self.num_replicas

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        self._begin()  # raises now what it would raise at the first index
        self._pass = opened = _Pass()
        return self._indices(opened)

    def _indices(self, opened: _Pass) -> Iterator[int]:
        """Runs when the first index is asked for: torch's loader may open a sampler twice and pull one of the iterators."""
        begin = self._begin()
        self._epoch, self._announced, self._resumed = begin.epoch, False, None
        self._pass, opened.begin = opened, begin  # of several that were opened, the one that begins
        length, stride = begin.facts.length, self.num_replicas
        share = self._share_of(length - begin.consumed)
        order = self._selection.order(length, self.seed, begin.epoch, self.shuffle)
        first = begin.consumed + self.rank
        done, size = 0, FIRST_BLOCK
        while done < share:
            count = min(size, share - done)
            start = first + done * stride
            positions = np.arange(start, start + count * stride, stride, dtype=np.uint64)
            if positions[-1] >= length:
                positions %= np.uint64(length)  # padded from the beginning
            done += count
            yield from opened.hand_over(order(positions))
            size = min(4 * size, LARGEST_BLOCK)

    @property
    def first_place(self) -> int:
        """Where in the order the iteration opened last begins on this rank. Its samples are ``num_replicas`` places apart."""
        return self._opening().consumed + self.rank

    @property
    def place_seed(self) -> int:
        """What randomness by place is keyed to in the iteration opened last: the same on all ranks."""
        return mix(self.seed, self._opening().epoch)

    def state_dict(self) -> dict[str, Any]:
        """How far the latest iterator has come, in samples of all ranks: the same on each, if each has taken as many."""
        opened = self._pass
        if self._announced or opened is None or opened.begin is None:
            return self._begin().as_dict()
        return self._after(opened.begin, opened.taken).as_dict()

    def __stoker_state__(self, taken: int, opening: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The state after each rank handed over ``taken`` samples of an iteration: loaders pull ahead of what they hand over.

        ``opening`` is what this said with ``taken=0`` when the iteration had been opened; None for the one opened last.
        """
        begin = self._opening() if opening is None else elastic_state.read(opening)
        return self._after(begin, taken).as_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next ``iter()`` goes on from there, on any number of ranks: with the next epoch if nothing of this one is left.

        Raises ValueError, and changes nothing, when the state is damaged or of a sampler with other orders.
        """
        saved = self._fitting(state)
        self._go_on(saved.epoch + 1 if saved.finished else saved.epoch, None if saved.finished else saved)

    def __stoker_load__(self, state: Mapping[str, Any]) -> None:
        """As ``load_state_dict``, for loaders, who know themselves when an epoch ended: where nothing is left, nothing comes."""
        saved = self._fitting(state)
        self._go_on(saved.epoch, saved)

    def __stoker_settle__(self) -> None:
        """For loaders, who may begin an epoch early: the iteration begun last is what a later ``set_epoch`` of its epoch meant."""
        begun = None if self._pass is None else self._pass.begin
        if begun is not None and begun.epoch == self._epoch and self._resumed is None:
            self._announced = False

    def _fitting(self, state: Mapping[str, Any]) -> ElasticProgress:
        saved = elastic_state.read(state)
        elastic_state.compare(saved, self._at(saved.epoch, 0))
        return saved

    def _go_on(self, epoch: int, resumed: ElasticProgress | None) -> None:
        self._epoch, self._resumed = epoch, resumed
        self._pass, self._announced = None, True

    @property
    def _next_epoch(self) -> int:
        return self._epoch if self._announced else self._epoch + 1

    def _begin(self) -> ElasticProgress:
        """Where the next iteration begins."""
        resumed = self._resumed
        begin = self._at(self._next_epoch, 0 if resumed is None else resumed.consumed)
        if resumed is not None:  # the dataset may have grown since it was loaded
            elastic_state.compare(resumed, begin)
        return begin

    def _opening(self) -> ElasticProgress:
        """Where the iteration opened last began, or will."""
        opened = self._pass
        return self._begin() if opened is None or opened.begin is None else opened.begin

    def _at(self, epoch: int, consumed: int) -> ElasticProgress:
        return ElasticProgress(epoch, consumed, self.seed, self.shuffle, self._selection.facts())

    def _after(self, begin: ElasticProgress, taken: int) -> ElasticProgress:
        """How far all ranks are when each has taken so many samples of an iteration that began there."""
        length = begin.facts.length
        if taken >= self._share_of(length - begin.consumed):
            return replace(begin, consumed=length)  # what drop_last leaves out is done with as well
        return replace(begin, consumed=begin.consumed + taken * self.num_replicas)

    def _share_of(self, left: int) -> int:
        """How many samples each rank takes of what is left of an epoch."""
        return left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)


class _Pass:
    """One iteration: where it began, None until its first index is asked for, and how far its iterator has come."""

    def __init__(self, begin: ElasticProgress | None = None, taken: int = 0) -> None:
        self.begin = begin
        self._computed = taken
        self._block: Iterator[int] = iter(())

    def hand_over(self, block: list[int]) -> Iterator[int]:
        """The next indices. What is left in their iterator tells how far the user is, at no cost per index."""
        self._computed += len(block)
        self._block = iter(block)
        return self._block

    @property
    def taken(self) -> int:
        """Samples yielded so far."""
        return self._computed - operator.length_hint(self._block)

    def __reduce__(self) -> Any:
        """A copy knows how far it was; its iterator is not copied."""
        return _Pass, (self.begin, self.taken)


def resolve_ranks(
    num_replicas: int | None, rank: int | None, environ: Mapping[str, str] = os.environ
) -> tuple[int, int]:
    """How many ranks there are and which one this is: as given, of the process group, of torchrun's environment, or alone."""
    if num_replicas is None or rank is None:
        found = (1, 0)
        if distributed.is_available() and distributed.is_initialized():
            found = (distributed.get_world_size(), distributed.get_rank())
        elif "WORLD_SIZE" in environ:
            found = (_number(environ, "WORLD_SIZE"), _number(environ, "RANK"))
        num_replicas = found[0] if num_replicas is None else num_replicas
        rank = found[1] if rank is None else rank
    num_replicas, rank = operator.index(num_replicas), operator.index(rank)
    if num_replicas < 1:
        raise ValueError(f"num_replicas should be a positive integer, but got {num_replicas}")
    if not 0 <= rank < num_replicas:
        raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
    return num_replicas, rank


def _number(environ: Mapping[str, str], name: str) -> int:
    value = environ.get(name, "")
    if not (value.isascii() and value.isdigit()):
        raise ValueError(
            f"{name} in the environment should be a number, but is {value!r}: pass num_replicas and rank"
        )
    return int(value)
