"""Leaves out or replaces samples that cannot be used: they raise, are None, or kill their worker.

``on_bad_sample="skip"`` leaves them out of their batch. ``"replace"`` puts another sample in their place: the next good one of
the same range of rows, or else one of the ticket's spares. The replacement is fetched anew. Both modes depend on the sampler's
order alone. So batches are the same for every number of workers, and no sample appears that the sampler did not name.

A worker writes what it fetches to the status page: a row, or one of the numbers below ``NO_ROW`` that this module defines. When
that fetch kills one worker too many, the number comes back among the ``excluded`` of the next order.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import isgenerator
from typing import Any, NamedTuple

import torch

from stoker._runtime.protocol.status_page import NO_ROW
from stoker._runtime.protocol.worker_spec import BadSampleMode, BatchOrder, Resume
from stoker.errors import NoGoodSample, coded

_log = logging.getLogger("stoker")
_BAD = object()
TOGETHER = -2
"""Stands for a row number: all rows are fetched at once. When it is excluded, rows are fetched one by one, to find the one that
kills.
"""

_FIRST_SPARE = -3
"""Stands for a row number: the first spare. Later spares count down from it. An excluded spare replaces no sample."""

_IN_A_ROW = 1000
"""After this many bad samples of a stream in a row, the error is raised: the stream is broken, not its samples."""


class BadSample(NamedTuple):
    """A sample that could not be used. ``kind`` is "error", "none" or "killed"; ``index`` is a StreamPlace for streams."""

    index: Any  # hides tuple.index, which is not used
    row: int
    kind: str
    reason: str


class StreamPlace(str):
    """Describes the place of a sample of a stream, which has no index."""


@dataclass(frozen=True, slots=True)
class FetchError:
    """The error that a row raised, in the place of its sample."""

    error: BaseException


class EmptyBatch(Exception):
    """Raised when every sample of a batch was bad and skipped, so there is no batch."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A batch with facts for the parent: bad samples, emptiness, the state of a stream. Other batches travel without one."""

    contents: Any
    bad: tuple[BadSample, ...] = ()
    empty: bool = False
    resume: Resume | None = None


class BadSampleFilter:
    """Fetches rows without the bad ones. Owner: a batch maker; called on its thread.

    ``before(order, row, at, index)`` is called before row ``row`` is fetched; the status page then shows ``at`` and ``index``.
    ``reseed`` sets the generators back to the start of the range. ``bind`` is that of the Fetcher. ``getitems`` fetches whole
    batches; None when rows are fetched one by one.
    """

    def __init__(
        self,
        mode: BadSampleMode,
        bind: Callable[[], Callable[[Any], Any]],
        getitems: Callable[[Any], Any] | None,
        before: Callable[[BatchOrder, int, int, Any], None],
        reseed: Callable[[BatchOrder], None],
    ) -> None:
        self._mode = mode
        self._bind = bind
        self._fetch: Callable[[Any], Any] = bind()
        self._getitems = getitems
        self._before = before
        self._reseed = reseed
        self.bad: list[BadSample] = []

    def rows(
        self, order: BatchOrder, indices: Sequence[Any], first: int, fetched: Sequence[Any] | None = None
    ) -> Any:
        """Return the usable samples of one range that begins at row ``first``. In mode "replace" there is one per index.

        ``fetched`` holds samples or errors of rows that were fetched already. The result is a list, unless the dataset's
        ``__getitems__`` returns a batch of its own type; that is returned as it is.
        """
        if self._getitems is None:
            self._fetch = self._bind()
        if self._getitems is not None:
            found = self._together(order, indices, first)
            if type(found) is not list:
                return found
        elif fetched is not None:
            found = [
                self._judged(index, first + place, fetched[place]) for place, index in enumerate(indices)
            ]
        else:
            found = [self._one(order, index, first + place) for place, index in enumerate(indices)]
        if self._mode == "skip":
            return [sample for sample in found if sample is not _BAD]
        good = [place for place, sample in enumerate(found) if sample is not _BAD]
        if len(good) < len(found):
            for place in [place for place, sample in enumerate(found) if sample is _BAD]:
                found[place] = self._replacement(order, indices, first, place, good)
        return found

    def _one(self, order: BatchOrder, index: Any, row: int) -> Any:
        if row in order.excluded:
            self.bad.append(killer(index, row))
            return _BAD
        self._before(order, row, row, index)
        return self._try(index, row)

    def _try(self, index: Any, row: int) -> Any:
        try:
            sample = self._fetch(index) if self._getitems is None else self._getitems([index])[0]
        except Exception as error:
            self.bad.append(BadSample(index, row, "error", _error_text(error)))
            return _BAD
        return self._judged(index, row, sample)

    def _judged(self, index: Any, row: int, sample: Any) -> Any:
        if type(sample) is FetchError:
            self.bad.append(BadSample(index, row, "error", _error_text(sample.error)))
            return _BAD
        if sample is None:
            self.bad.append(BadSample(index, row, "none", "is None"))
            return _BAD
        return sample

    def _together(self, order: BatchOrder, indices: Sequence[Any], first: int) -> Any:
        """Call ``__getitems__`` once for all rows; fetch one by one only when that fails."""
        assert self._getitems is not None
        found: Any = []
        if all(name < TOGETHER for name in order.excluded):  # only spares are excluded
            self._before(order, first, TOGETHER, None)
            with suppress(Exception):
                found = self._getitems(order.indices)
        if not isinstance(found, list | tuple):
            return found
        found = list(found)
        if len(found) != len(indices):
            self._reseed(order)
            return [self._one(order, index, first + place) for place, index in enumerate(indices)]
        for place, sample in enumerate(found):
            if sample is None:
                self.bad.append(BadSample(indices[place], first + place, "none", "is None"))
                found[place] = _BAD
        return found

    def _replacement(
        self, order: BatchOrder, indices: Sequence[Any], first: int, place: int, good: Sequence[int]
    ) -> Any:
        """Return a sample for the row at ``place``: from a good row after it, then before it, then from the spares."""
        inside = sorted(good, key=lambda other: (other < place, other))
        candidates = [(indices[other], NO_ROW) for other in inside]
        candidates += [(index, _FIRST_SPARE - number) for number, index in enumerate(order.spares)]
        for index, name in candidates:
            if name in order.excluded:
                continue
            self._before(order, first + place, name, index)
            sample = self._try(index, first + place)
            if sample is not _BAD:
                return sample
        lines = [f"\n  dataset index {each.index!r}: {each.reason}" for each in self.bad[:8]]
        raise NoGoodSample(
            "on_bad_sample='replace' found no good sample to put in the place of a bad one:" + "".join(lines)
        )


def good_samples(
    stream: Iterator[Any], wanted: int, bad: list[BadSample], seen: Callable[[], int]
) -> list[Any]:
    """Return up to ``wanted`` usable samples of a stream. ``seen`` counts a sample and returns its number.

    A generator cannot go on after it raised, so its error is raised, with a note. After too many bad samples in a row, the last
    error or NoGoodSample is raised.
    """
    samples: list[Any] = []
    in_a_row = 0
    failed = False
    while len(samples) < wanted:
        number = seen()
        try:
            sample = next(stream)
        except StopIteration:
            if failed:
                _log.warning(
                    "the stream ended right after its sample %d raised: a generator ends when it raises, so if the stream "
                    "reads from one, the rest of it is not read",
                    number - 1,
                )
            break
        except Exception as error:
            if isgenerator(stream):
                error.add_note(
                    f"stoker: on_bad_sample cannot go past this: sample {number} of the stream came out of a generator, and a "
                    "generator ends when it raises. Catch the error inside it, or return an iterator whose __next__ can be "
                    "called again."
                )
                coded(error, "STK509")
                raise
            failed = True
            in_a_row += 1
            bad.append(BadSample(number, len(samples), "error", _error_text(error)))
            if in_a_row >= _IN_A_ROW:
                error.add_note(
                    f"stoker: {in_a_row} samples of the stream were bad without a good one between them"
                )
                raise
            continue
        failed = False
        if sample is None:
            in_a_row += 1
            bad.append(BadSample(number, len(samples), "none", "is None"))
            if in_a_row >= _IN_A_ROW:
                raise NoGoodSample(
                    f"{in_a_row} samples of the stream were bad without a good one between them; the last, number {number}, "
                    "is None"
                )
        else:
            in_a_row = 0
            samples.append(sample)
    return samples


def killer(index: Any, row: int) -> BadSample:
    """Describe a row that is excluded because it killed its workers."""
    return BadSample(index, row, "killed", "killed every worker that fetched it")


def key_of(index: Any) -> Any:
    """Return the key of an index for sets and dicts. Equal integers share one; unhashable indices use their text."""
    try:
        return operator.index(index)
    except TypeError:
        pass
    try:
        hash(index)
    except TypeError:
        return repr(index)
    return repr(index) if isinstance(index, torch.Tensor) else index


def _error_text(error: BaseException) -> str:
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # its own __str__ may fail
        text = type(error).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."
