"""Measures the size of the dataset's pickle, and the time to make it, in one trial that keeps nothing.

Tensors, arrays and what cannot be pickled are left out of it; of large containers a sample is pickled by itself.
"""

from __future__ import annotations

import math
import pickle
import time
from itertools import chain
from typing import Any, NamedTuple

from stoker._tools.doctor.scanning.kinds import ATOMS
from stoker._tools.doctor.scanning.walk import PLAIN, Walk

_TRIALS = 3
"""A sample is pickled so often, and the fastest counts: a moment without the CPU would be multiplied."""

_NUMBERS = frozenset({type(None), bool, int, float, complex})
_NESTED = 128
"""So many items of a sample are pickled when they hold more items."""


class PickleTrial(NamedTuple):
    """``seconds`` of CPU. None when it could not be made. ``too_deep``: pickling ran out of stack."""

    nbytes: int | None
    seconds: float | None
    too_deep: bool = False


class _NullSink:
    """Takes bytes and keeps none."""

    def __init__(self) -> None:
        self.nbytes = 0

    def write(self, data: Any) -> int:
        self.nbytes += len(data)
        return len(data)


class _Stub:
    """Stands for what is left out."""


class _TravelPickler(pickle.Pickler):
    def __init__(self, sink: _NullSink, walk: Walk) -> None:
        super().__init__(sink, protocol=5, buffer_callback=lambda _: None)
        self._known = walk.reductions.known
        self._sampled = walk.sampled
        self._left_out = (
            walk.leaves.stubs
            | {id(node.obj) for node, _, _ in walk.refused}
            | {id(node.obj) for node in walk.local}
        )
        # A sample has items that the walk did not look at: those are left out by their types.
        self._kinds = {type(node.obj) for node, _, _ in walk.refused} | walk.leaves.stub_kinds

    def reducer_override(self, obj: Any) -> Any:
        if id(obj) in self._left_out:
            return _Stub, ()
        known = self._known(obj)
        if type(known) is tuple:  # iterators in it were kept as lists
            return tuple(
                iter(part) if at in (3, 4) and type(part) is list else part for at, part in enumerate(known)
            )
        return (_Stub, ()) if type(obj) in self._kinds else NotImplemented


class _Sampling(_TravelPickler):
    """The same, for trials with large containers, which only ``persistent_id`` can leave out."""

    def persistent_id(self, obj: Any) -> int | None:
        return 0 if id(obj) in self._sampled else None


def attempt(walk: Walk, roots: tuple[Any, ...]) -> PickleTrial:
    """Pickle the roots of a walk, once. Called inside its spawning context."""
    make = _Sampling if walk.sampled else _TravelPickler
    inside = _Sampling if any(node.bulk for node, _, _, _ in walk.sampled.values()) else _TravelPickler
    nbytes, seconds = 0.0, 0.0
    try:
        size, took = _timed(make, roots, walk)
        nbytes, seconds = nbytes + size, seconds + took
        for node, sample, length, pairs in walk.sampled.values():
            if not node.ways & PLAIN:
                continue
            kinds = set(map(type, chain.from_iterable(sample) if pairs else sample))
            plain = kinds <= ATOMS
            some = sample if plain else sample[:: -(-len(sample) // _NESTED)]
            data = dict(some) if pairs else list(some)
            trials = [_timed(_TravelPickler if plain else inside, data, walk) for _ in range(_TRIALS)]
            share = node.weight * length / len(some)
            slowed = _slowed(node.weight * length) if kinds - _NUMBERS else 1.0
            nbytes += share * trials[0][0]
            seconds += share * min(took for _, took in trials) * slowed
    except RecursionError:
        return PickleTrial(None, None, too_deep=True)
    except Exception:  # something that the walk took no notice of
        return PickleTrial(None, None)
    return PickleTrial(round(nbytes), seconds)


def _slowed(items: float) -> float:
    """By how much an item takes longer than in a sample: the pickler remembers all but numbers, and caches do not hold that.

    Measured, per text: 44 ns in a sample, 140 among a hundred thousand, 350 among a million, 480 among five million.
    """
    return max(1.0, 1.0 + 4.0 * math.log10(items / 20_000))


def _timed(make: type[_TravelPickler], obj: Any, walk: Walk) -> tuple[int, float]:
    sink = _NullSink()
    pickler = make(sink, walk)
    start = time.thread_time()
    pickler.dump(obj)
    return sink.nbytes, time.thread_time() - start
