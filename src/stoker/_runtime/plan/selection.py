"""Chooses samples for a sampler: all of the dataset, a subset, or draws by weight, in one order per epoch.

An order answers "which indices stand at these positions" for a block of positions at a time, in constant memory.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from stoker._runtime.plan.permutation import Permutation, Words, hashed
from stoker._runtime.scheduler.row_ranges import mix

_UNIT = 2.0**-53
_SMALLEST_SUM = 2.0**-960
"""Shares of less lose digits, and one below 1 could round to the whole sum."""


class OrderFacts(NamedTuple):
    """What must be the same for two samplers to have the same orders, beside their seed."""

    selection: str
    """"all", "subset" or "weights"."""
    size: int
    """How many elements there are to choose from."""
    length: int
    """How many positions an epoch has."""
    checksum: int
    """Of the weights; 0 without any."""


class Selection:
    """Made once by the sampler, of its arguments; asked at every ``iter()``. Used on the thread that iterates."""

    def __init__(
        self, dataset: Any, subset: Any = None, weights: Any = None, draws: int | None = None
    ) -> None:
        self._dataset = dataset
        self._subset = subset
        self._pick = None if subset is None else _picker(subset)
        self._cumulative = None if weights is None else _cumulative(weights)
        self._checksum = 0 if self._cumulative is None else zlib.crc32(self._cumulative.data)
        self._draws = draws
        self.facts()

    def facts(self) -> OrderFacts:
        """Return the facts as they are now: datasets and subsets may have grown."""
        size = len(self._dataset if self._subset is None else self._subset)
        if self._cumulative is None:
            return OrderFacts("all" if self._subset is None else "subset", size, size, 0)
        if len(self._cumulative) != size:
            what = "dataset" if self._subset is None else "subset"
            raise ValueError(
                f"weights should have one number for each of the {size} elements of the {what}, "
                f"but there are {len(self._cumulative)}"
            )
        return OrderFacts("weights", size, size if self._draws is None else self._draws, self._checksum)

    def order(self, length: int, seed: int, epoch: int, shuffle: bool) -> Callable[[Words], list[int]]:
        """What maps positions of one epoch, each below ``length``, to indices of the dataset."""
        place = self._places(length, seed, epoch, shuffle)
        pick = self._pick
        if pick is None:
            return lambda positions: place(positions).tolist()
        return lambda positions: pick(place(positions))

    def _places(self, length: int, seed: int, epoch: int, shuffle: bool) -> Callable[[Words], Words]:
        cumulative = self._cumulative
        if cumulative is not None:
            key = mix(seed, epoch, 0xD1CE)
            return lambda positions: _drawn(cumulative, positions, key)
        if shuffle:
            return Permutation(length, seed, epoch).at
        return lambda positions: positions


def _drawn(cumulative: npt.NDArray[np.float64], positions: Words, key: int) -> Words:
    """The elements that fall to these positions: each position has a number of its own, on every rank."""
    share = (hashed(positions, key) >> np.uint64(11)).astype(np.float64)
    share *= _UNIT
    share *= cumulative[-1]
    # A share below 1 of the sum is below the sum after rounding too, and ties go right: an element without weight is never met.
    return np.searchsorted(cumulative, share, side="right").astype(np.uint64)


def _cumulative(weights: Any) -> npt.NDArray[np.float64]:
    """Running sums of the weights, the only array that is kept of them."""
    if isinstance(weights, torch.Tensor):
        weights = weights.detach().cpu().double().numpy()
    try:
        numbers = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"weights should be a sequence of numbers: {error}") from None
    if numbers.ndim != 1:
        raise ValueError(
            f"weights should be a 1-D sequence, but given weights have shape {tuple(numbers.shape)}"
        )
    for wrong, why in ((~np.isfinite(numbers), "finite"), (numbers < 0, "non-negative")):
        places = np.flatnonzero(wrong)
        if places.size:
            first = int(places[0])
            more = f", and {places.size - 1} more like it" if places.size > 1 else ""
            raise ValueError(f"weights should be {why}, but weights[{first}] is {numbers[first]}{more}")
    with np.errstate(over="ignore"):
        sums: npt.NDArray[np.float64] = np.cumsum(numbers)
    if not sums.size or sums[-1] <= 0:
        raise ValueError(f"weights should have a sum above 0, but the sum of {sums.size} weights is 0")
    if sums[-1] < _SMALLEST_SUM:
        raise ValueError(f"the sum of the weights is {sums[-1]}, too small to be divided: scale them up")
    if not np.isfinite(sums[-1]):
        raise ValueError("the sum of the weights is more than a float64 can hold: scale them down")
    return sums


def _picker(subset: Any) -> Callable[[Words], list[int]]:
    """How indices are read from a subset: at once from arrays and tensors, one by one from any other sequence."""
    if hasattr(subset, "to_numpy"):
        subset = subset.to_numpy()  # a column of a table, whose own [] may go by label
    if isinstance(subset, np.ndarray | torch.Tensor):
        if subset.ndim != 1:
            raise ValueError(
                f"subset should be a 1-D sequence of indices, but it has shape {tuple(subset.shape)}"
            )
        kind = str(subset.dtype).removeprefix("torch.")
        if kind == "bool":
            raise ValueError("subset should hold indices, but it is a mask: use np.flatnonzero(mask)")
        if "int" not in kind:
            raise ValueError(f"subset should hold integers, but its dtype is {kind}")
        if isinstance(subset, np.ndarray):
            return _FromArray(subset)
        return _FromTensor(subset)
    if not hasattr(subset, "__getitem__") or not hasattr(subset, "__len__"):
        raise TypeError(f"subset should be a sequence of indices, but got {type(subset).__name__}")
    return _OneByOne(subset)


class _FromArray:
    def __init__(self, subset: npt.NDArray[Any]) -> None:
        self._subset = subset

    def __call__(self, places: Words) -> list[int]:
        indices: list[int] = self._subset[places.astype(np.intp)].tolist()
        return indices


class _FromTensor:
    def __init__(self, subset: torch.Tensor) -> None:
        self._subset = subset

    def __call__(self, places: Words) -> list[int]:
        chosen = torch.from_numpy(places.astype(np.int64)).to(self._subset.device)
        indices: list[int] = self._subset[chosen].tolist()
        return indices


class _OneByOne:
    def __init__(self, subset: Sequence[Any]) -> None:
        self._subset = subset

    def __call__(self, places: Words) -> list[int]:
        subset = self._subset
        return [operator.index(subset[place]) for place in places.tolist()]
