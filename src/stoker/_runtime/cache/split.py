"""``before="transform"``: cuts a dataset at its transform, in a part that is the same each time and a part that is random.

    dataset.transform = Compose([Resize, RandomCrop, ToTensor])

    kept:   a copy of the dataset whose transform is [Resize]; it notes which parts of the sample came out of it
    anew:   [RandomCrop, ToTensor], applied to these parts of every sample

The parts are found by identity: what the transform returned must stand in the sample as it is.
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from stoker._runtime.cache.proving.apart import ChildLost, run_apart
from stoker._runtime.cache.proving.draws import DrawWatch, reseed
from stoker._runtime.cache.proving.parts import parts_of
from stoker._runtime.cache.proving.proof import digest_of
from stoker.errors import CacheRefused

Place = tuple[Any, ...]
"""The keys that lead from a sample to a part of it."""

_RANDOM_NAME = re.compile(
    r"random|jitter|dropout|cutout|mixup|cutmix|autoaugment|trivialaugment|augmix|erasing", re.I
)
_SEARCHED = 2
_DEEP = 4


class CutSample(NamedTuple):
    """A sample before the random part, and the places to which that is applied, in the order of the calls."""

    sample: Any
    places: list[Place]


class SplitDataset:
    """A dataset cut at an attribute. ``fetch`` makes the part to keep, ``finish`` the rest. Any thread.

    ``steps`` is how many of the transform's steps are kept; None lets a child find out.
    """

    def __init__(self, dataset: Any, attribute: str, steps: int | None = None) -> None:
        self.attribute = attribute
        transform = getattr(dataset, attribute, None)
        if not callable(transform):
            raise CacheRefused(
                f"before={attribute!r} needs a dataset with a transform in that attribute; "
                f"{type(dataset).__name__}.{attribute} is {transform!r}"
            )
        self.steps = _steps_before_random(dataset, attribute, transform) if steps is None else steps
        kept, self._rest = _cut(transform, self.steps)
        self._marking = _Marking(kept)
        self.source = _with(dataset, attribute, transform, self._marking)

    @property
    def is_whole(self) -> bool:
        """Whether no step is left to run anew."""
        return self._rest is None

    def fetch(self, index: int) -> CutSample:
        """Return the part of a sample to keep. Raises CacheRefused if the transform's result is not in the sample."""
        marks = self._marking.begin()
        sample = self.source[index]
        places = []
        for mark in marks:
            found = [place for place, value in _walk(sample) if value is mark]
            if len(found) != 1:
                how = "changes" if not found else "repeats"
                raise CacheRefused(
                    f"{type(self.source).__name__} {how} what its {self.attribute} returns, so the random part cannot be run "
                    "anew on a kept sample. Keep the decoder's output instead: dataset.loader = stoker.cached(dataset.loader)"
                )
            places.append(found[0])
        return CutSample(sample, places)

    def finish(self, sample: Any, places: list[Place]) -> Any:
        """Return the sample with the random part applied."""
        if self._rest is not None:
            for place in places:
                sample = _replaced(sample, place, self._rest)
        return sample


class _Marking:
    """Stands in for the transform, and notes what it returned, per thread."""

    def __init__(self, kept: Callable[[Any], Any]) -> None:
        self._kept = kept
        self._marks = threading.local()

    def begin(self) -> list[Any]:
        """Begin a sample; its marks are added to the list."""
        self._marks.now = []
        return self._marks.now  # type: ignore[no-any-return]

    def __call__(self, *values: Any, **named: Any) -> Any:
        made = self._kept(_only(values, named))
        self._marks.now.append(made)
        return made


def _only(values: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The one value that a transform is called with. Raises CacheRefused if it is called in another way."""
    if len(values) != 1 or named:
        call = ", ".join(["…"] * len(values) + [f"{name}=…" for name in named])
        raise CacheRefused(
            f"the transform is called as transform({call}), and before= needs one that takes and returns one value. "
            "Keep the decoder's output instead: dataset.loader = stoker.cached(dataset.loader)"
        )
    return values[0]


def _chain(transform: Any) -> list[Any] | None:
    """The steps of a transform that is a plain chain, such as torchvision's Compose; None for any other."""
    if isinstance(transform, torch.nn.Sequential):
        return list(transform)
    steps = getattr(transform, "transforms", None)
    if (
        isinstance(steps, list | tuple)
        and type(transform).__name__ == "Compose"
        and all(map(callable, steps))
    ):
        return list(steps)
    return None


def _cut(transform: Any, steps: int) -> tuple[Callable[[Any], Any], Callable[[Any], Any] | None]:
    """Return what to keep, and what to run anew (None if that is nothing)."""
    chain = _chain(transform)
    if chain is None:
        return (transform, None) if steps else (_same, transform)
    if steps >= len(chain):
        return transform, None
    if not steps:
        return _same, transform
    return _part(transform, chain[:steps]), _part(transform, chain[steps:])


def _part(transform: Any, steps: list[Any]) -> Any:
    if isinstance(transform, torch.nn.Sequential):
        part = torch.nn.Sequential(*steps)
        part.training = transform.training
        return part
    part = copy.copy(transform)
    part.transforms = type(transform.transforms)(steps)
    return part


def _same(value: Any) -> Any:
    return value


def _with(dataset: Any, attribute: str, transform: Any, other: Any) -> Any:
    """A copy of the dataset with another transform: also inside torchvision's StandardTransform, which holds it once more."""
    made = copy.copy(dataset)
    object.__setattr__(made, attribute, other)
    for name, value in vars(dataset).items():
        if (
            name != attribute
            and getattr(value, "transform", None) is transform
            and type(value).__name__ == "StandardTransform"
        ):
            pair = copy.copy(value)
            pair.transform = other
            object.__setattr__(made, name, pair)
    return made


def _steps_before_random(dataset: Any, attribute: str, transform: Any) -> int:
    """How many steps of the transform are the same each time. A child runs them, on two samples and under two seeds."""
    chain = _chain(transform)
    steps = [transform] if chain is None else chain
    named = next(
        (place for place, step in enumerate(steps) if _RANDOM_NAME.search(type(step).__name__)), len(steps)
    )

    def work(say: Callable[[Any], None]) -> None:
        inputs: list[Any] = []

        def note(*values: Any, **named: Any) -> Any:
            inputs.append(copy.deepcopy(_only(values, named)))
            return transform(*values, **named)

        source = _with(dataset, attribute, transform, note)
        for index in range(min(_SEARCHED, len(dataset))):
            source[index]
        watch = DrawWatch(parts_of(dataset).generators)
        least = named
        for value in inputs:
            for place, step in enumerate(steps[:least]):
                made = []
                for seed in (1, 2):
                    reseed(seed)
                    mark = watch.mark()
                    made.append(step(copy.deepcopy(value)))
                    if watch.drawn(mark):
                        least = place
                if least == place or digest_of(made.__getitem__, 0) != digest_of(made.__getitem__, 1):
                    least = place
                    break
                value = made[0]
        say(least)

    try:
        ((least,),) = run_apart(work)
    except ChildLost as lost:
        raise CacheRefused(
            f"stoker could not run {attribute!r} of {type(dataset).__name__} step by step: {lost}"
        ) from None
    return int(least)


def _walk(sample: Any, place: Place = ()) -> list[tuple[Place, Any]]:
    """All parts of a sample that lie in lists, tuples and dicts, with their places."""
    found = [(place, sample)]
    if len(place) < _DEEP:
        if isinstance(sample, dict):
            for key, value in sample.items():
                found += _walk(value, (*place, key))
        elif isinstance(sample, list | tuple):
            for number, value in enumerate(sample):
                found += _walk(value, (*place, number))
    return found


def _replaced(sample: Any, place: Place, function: Callable[[Any], Any]) -> Any:
    """The sample with a function applied to one part of it. Its lists and dicts are changed in place: they are fresh."""
    if not place:
        return function(sample)
    key, rest = place[0], place[1:]
    made = _replaced(sample[key], rest, function)
    if isinstance(sample, tuple):
        items = [*sample[:key], made, *sample[key + 1 :]]
        return type(sample)(*items) if hasattr(sample, "_fields") else type(sample)(items)
    sample[key] = made
    return sample
