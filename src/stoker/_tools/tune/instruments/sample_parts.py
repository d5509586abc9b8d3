"""Measures what of a sample's work is the same every time: all of it, what comes before a random transform, or one function.

It runs in a fork, where the functions that the dataset keeps as attributes are replaced by timed ones. Random numbers are found
by the states of the generators within reach, so a sample that draws from elsewhere looks deterministic. ``stoker.cache`` looks
once more, and closer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import Dataset

from stoker._tools.probes.batch_bytes import batch_bytes
from stoker._tools.probes.generator_watch import GeneratorWatch

_clock = time.perf_counter_ns
_WRAPPERS = 4
"""A dataset inside a dataset (Subset) is looked into this far."""
_SMALL_BYTES = 64
"""What a number or another small object takes in a store."""


@dataclass(frozen=True, slots=True)
class SamplePart:
    """A part of the work that is the same every time. ``kind``: "whole", "before" (the attribute), "function" (the attribute)."""

    kind: str
    path: str
    ns: float
    nbytes: float


@dataclass(frozen=True, slots=True)
class SampleParts:
    """Of one dataset. ``drawn`` names the generators that samples drew from."""

    samples: int
    sample_ns: float
    drawn: tuple[str, ...]
    parts: tuple[SamplePart, ...]


def measured_parts(dataset: Any, indices: Sequence[Any], seconds: float) -> SampleParts:
    """Make these samples, as many as there is time for, and say what of them a cache could keep. Raises what the samples raise.

    To be called in a fork: it changes the dataset.
    """
    indices = indices or (0,)
    dataset[indices[0]]  # opens files and imports modules
    watch = GeneratorWatch(dataset)
    took_ns, nbytes = [], []
    until_ns = _clock() + int(seconds * 5e8)
    for index in indices:
        began_ns = _clock()
        sample = dataset[index]
        took_ns.append(_clock() - began_ns)
        nbytes.append(value_bytes(sample))
        if _clock() > until_ns:
            break
    sample_ns = sum(took_ns) / len(took_ns)
    drawn = tuple(each.name for each in watch.drawn())
    if not drawn:
        whole = SamplePart("whole", "dataset", sample_ns, sum(nbytes) / len(nbytes))
        return SampleParts(len(took_ns), sample_ns, (), (whole,))
    return SampleParts(
        len(took_ns), sample_ns, drawn, tuple(_parts(dataset, indices[: len(took_ns)], watch, sample_ns))
    )


def value_bytes(value: Any) -> int:
    """The bytes that a store needs for a value: of tensors, arrays, pictures and texts. Others count as small."""
    if isinstance(value, dict):
        return sum(map(value_bytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(value_bytes, value))
    if isinstance(value, bytes | bytearray | str):
        return len(value)
    bands = getattr(value, "getbands", None)
    if callable(bands):  # a picture of Pillow's
        width, height = value.size
        return int(width) * int(height) * len(bands())
    return batch_bytes(value) or _SMALL_BYTES


@dataclass(slots=True)
class _TimedFunction:
    """A function of the dataset, with what was seen of its calls."""

    function: Callable[..., Any]
    watch: GeneratorWatch
    clean: bool = True
    """Whether nothing was drawn before it was called, in the sample that is being made."""
    random: bool = False
    late: bool = False
    """Whether something was drawn before some call of it."""
    entries: list[int] = field(default_factory=list)
    """Moments at which it was called."""
    ns: int = 0
    """Its own time; of a random one, the time until its first random step."""
    nbytes: int = 0
    apart_ns: int = 0
    """What looking at generators took."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        began_ns = _clock()
        self.late = self.late or bool(self.watch.drawn())
        entered_ns = _clock()
        self.apart_ns += entered_ns - began_ns
        self.entries.append(entered_ns)
        steps = getattr(self.function, "transforms", None)
        if (
            isinstance(steps, list | tuple)
            and steps
            and len(args) == 1
            and not kwargs
            and all(map(callable, steps))
        ):
            return self._in_steps(steps, args[0])
        value = self.function(*args, **kwargs)
        ended_ns = _clock()
        if self.watch.drawn():
            self.random = True
            if args:
                self.nbytes += value_bytes(args[0])
        else:
            self.ns += ended_ns - entered_ns
            self.nbytes += value_bytes(value)
        self.apart_ns += _clock() - ended_ns
        return value

    def _in_steps(self, steps: Sequence[Callable[[Any], Any]], value: Any) -> Any:
        """One after another, as a Compose does: what comes before the first random one counts."""
        steady = True
        for step in steps:
            began_ns = _clock()
            following = step(value)
            ended_ns = _clock()
            if steady and self.watch.drawn():
                steady, self.random = False, True
                self.nbytes += value_bytes(value)
            if steady:
                self.ns += ended_ns - began_ns
            value = following
            self.apart_ns += _clock() - ended_ns
        if steady:
            self.nbytes += value_bytes(value)
        return value


def _parts(dataset: Any, indices: Sequence[Any], watch: GeneratorWatch, sample_ns: float) -> list[SamplePart]:
    """The same samples once more, with timed functions. A part counts by its share of this round, which may have been slower."""
    path, holder = _holder(dataset)
    timed = {}
    for name, value in list(vars(holder).items()):
        if _is_function(value):
            timed[name] = _TimedFunction(value, watch)
            with suppress(Exception):  # a dataset may refuse to be changed
                setattr(holder, name, timed[name])
    starts, whole_ns = [], 0
    for index in indices:
        watch.again()
        starts.append(_clock())
        dataset[index]
        whole_ns += _clock() - starts[-1]
    found = []
    count = len(indices)
    whole_ns -= sum(each.apart_ns for each in timed.values())
    scale = sample_ns * count / max(1, whole_ns)
    for name, each in timed.items():
        if len(each.entries) != count or each.late:
            continue
        if each.random:
            others_ns = sum(other.apart_ns for other in timed.values() if other is not each) // count
            before_ns = sum(each.entries) - sum(starts)
            ns = max(0.0, before_ns / count - others_ns) + each.ns / count
            found.append(SamplePart("before", f"{path}.{name}", scale * ns, each.nbytes / count))
        else:
            found.append(
                SamplePart("function", f"{path}.{name}", scale * each.ns / count, each.nbytes / count)
            )
    return found


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type | Dataset)


def _holder(dataset: Any) -> tuple[str, Any]:
    """The dataset that has the functions: inside of Subset and its like."""
    path = "dataset"
    for _ in range(_WRAPPERS):
        inner = getattr(dataset, "dataset", None)
        if inner is None or any(map(_is_function, vars(dataset).values())):
            break
        path, dataset = f"{path}.dataset", inner
    return path, dataset
