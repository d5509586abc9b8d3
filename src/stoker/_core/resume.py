"""The state of a loader as people keep it: a flat dict of plain values, checked as a whole before anything is done with it.

    state (dict) ──parse──► Saved ──differences(here)──► what does not fit, in words, with what can be done about it

What it says: which batches of an epoch were handed over, and what it takes to go on. What belongs to the user (states of samplers
and datasets) is carried as it is; everything else can be written as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

VERSION = 1
_MARK = "stoker"
"""The key that holds the format's version, and tells such a dict from others."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a state and the loader it is loaded into have to agree on.

    ``sampler`` names the kinds of the samplers, outermost first. ``replicas`` is how many ranks a distributed sampler divides
    by, ``rank`` which of them it serves: all may load the state of one of them, unless batches were handed over out of order.
    ``elastic`` tells that the sampler can go on with any number of them.
    """

    kind: str
    length: int | None
    sampler: tuple[str, ...]
    sampler_length: int | None
    replicas: int | None
    elastic: bool
    batch_size: int | None
    rng: str
    rank: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class StreamState:
    """Where one worker's stream of an iterable dataset stands: batches handed over, and what the user's parts said.

    ``at`` is how many batches had been pulled when they said it; ``dataset`` and ``iterator`` are None where they have no state.
    ``begun``: they speak of this epoch, because the stream has given a batch or was made of others.
    """

    pulled: int = 0
    at: int = 0
    dataset: Any = None
    iterator: Any = None
    ended: bool = False
    begun: bool = False


@dataclass(frozen=True, slots=True)
class Saved:
    """A state that is whole. Batches with numbers below ``batches`` were handed over, and those in ``ahead``."""

    facts: Facts
    base_seed: int
    pipe_seed: int | None
    batches: int
    samples: int
    ahead: tuple[int, ...]
    finished: bool
    generators: dict[str, Any]
    sampler_epoch: int | None
    sampler_state: Any
    sampler_at: int
    dataset_state: Any
    streams: tuple[StreamState, ...] | None
    turn: int


_FACTS = tuple(each.name for each in fields(Facts))
_REST = tuple(each.name for each in fields(Saved) if each.name != "facts")


def dump(saved: Saved) -> dict[str, Any]:
    """A fresh dict."""
    state: dict[str, Any] = {_MARK: VERSION}
    for name in _FACTS:
        state[name] = getattr(saved.facts, name)
    for name in _REST:
        state[name] = getattr(saved, name)
    state["sampler"] = list(saved.facts.sampler)
    state["ahead"] = list(saved.ahead)
    state["generators"] = {
        key: list(value) if isinstance(value, list) else value for key, value in saved.generators.items()
    }
    if saved.streams is not None:
        state["streams"] = [{name: getattr(each, name) for name in _STREAM_FORM} for each in saved.streams]
    return state


def parse(state: Any) -> Saved:
    """The state as it was dumped. Raises ValueError for anything else, and says what is wrong with it."""
    if not isinstance(state, dict):
        raise ValueError(
            f"a state of a loader is a dict as state_dict() returns it, but got {type(state).__name__}"
        )
    if _MARK not in state:
        raise ValueError(_foreign(state))
    version = state[_MARK]
    if version != VERSION or isinstance(version, bool):
        raise ValueError(
            f"this state has format {version!r}, and this version of stoker reads format {VERSION}: load it with the stoker that "
            "saved it, or begin the epoch anew without it"
        )
    values = {}
    for name, (fits, what) in _FORM.items():
        if name not in state:
            raise ValueError(
                f"this state is truncated: it has no {name!r}. Load one that was kept as state_dict() returned it"
            )
        values[name] = state[name]
        if not fits(values[name]):
            raise ValueError(f"this state is damaged: {name!r} should be {what}, but is {values[name]!r:.80}")
    streams = values.pop("streams")
    values["streams"] = None if streams is None else tuple(map(_stream, streams))
    values["ahead"] = tuple(values["ahead"])
    values["sampler"] = tuple(values["sampler"])
    facts = Facts(**{name: values.pop(name) for name in _FACTS})
    saved = Saved(facts=facts, **values)
    if any(number < saved.batches for number in saved.ahead):
        raise ValueError("this state is damaged: 'ahead' names batches that 'batches' has counted already")
    if (saved.streams is not None) != (facts.kind == "iterable"):
        raise ValueError("this state is damaged: 'streams' belong to iterable datasets, and to no others")
    return saved


def differences(saved: Saved, here: Facts) -> list[str]:
    """What keeps a state from being loaded: one sentence each, with what can be done."""
    was = saved.facts
    if was.kind != here.kind:
        return [
            f"it was saved over {_article(was.kind)} dataset, and this loader has {_article(here.kind)} one"
        ]
    if saved.finished:
        return []  # a new epoch follows, whatever its data
    found = []
    if was.length != here.length and was.kind == "map":
        found.append(
            f"its dataset had {_count(was.length)}, this one has {_count(here.length)}: load it over the same data, "
            "or begin the epoch anew"
        )
    if was.sampler != here.sampler:
        found.append(
            f"its samplers were {' over '.join(was.sampler)}, here they are {' over '.join(here.sampler)}: "
            "give the loader the same shuffle, sampler and batch_sampler arguments, or begin the epoch anew"
        )
    elif not here.elastic and was.replicas != here.replicas:
        found.append(
            f"its sampler divided the data by {was.replicas} ranks, this one by {here.replicas}: run as many ranks, or use "
            "stoker.ElasticDistributedSampler with batch_size, which goes on with any number of them"
        )
    elif saved.ahead and (was.rank, was.replicas) != (here.rank, here.replicas):
        found.append(
            f"its batches were handed over out of order on rank {was.rank} of {was.replicas}, and this is rank {here.rank} of "
            f"{here.replicas}: load on every rank the state that it saved itself, or save with in_order=True"
        )
    elif not here.elastic and was.sampler_length != here.sampler_length and was.length == here.length:
        found.append(
            f"its sampler had {_count(was.sampler_length)}, this one has {_count(here.sampler_length)}: "
            "give the loader the same sampler, or begin the epoch anew"
        )
    if was.rng != here.rng:
        found.append(
            f"it was saved with rng={was.rng!r}, this loader has rng={here.rng!r}: give the loader rng={was.rng!r}"
        )
    if was.batch_size != here.batch_size and not _may_rebatch(saved, here):
        found.append(
            f"its batch_size was {was.batch_size}, here it is {here.batch_size}, and {_why_not_rebatch(saved)}: give the loader "
            f"batch_size={was.batch_size}, or begin the epoch anew"
        )
    return found


def _may_rebatch(saved: Saved, here: Facts) -> bool:
    """Whether the epoch can go on in batches of another size: its samples were handed over up to one point of the order."""
    sizes = saved.facts.batch_size, here.batch_size
    return saved.facts.kind == "map" and None not in sizes and not saved.ahead


def _why_not_rebatch(saved: Saved) -> str:
    if saved.facts.kind == "iterable":
        return "streams are counted in batches"
    if saved.ahead:
        return "batches were handed over out of order"
    return "one of them is without automatic batching"


def _foreign(state: dict[Any, Any]) -> str:
    names = ", ".join(repr(name) for name in list(state)[:6])
    text = f"this is no state of a stoker loader: it has no {_MARK!r} but {names}"
    if "_snapshot" in state or "_num_yielded" in state or "_sampler_iter_yielded" in state:
        return (
            f"{text}. It looks like one of torchdata's StatefulDataLoader, whose layout is private: finish that epoch with it, "
            "or begin anew"
        )
    if "state_dict" in names or "loader" in names or "model" in names:
        return text + ". Is the loader's state a part of it?"
    return text


def _article(kind: str) -> str:
    return "an iterable-style" if kind == "iterable" else "a map-style"


def _count(length: int | None) -> str:
    return "no length" if length is None else f"{length} samples"


def _stream(each: dict[str, Any]) -> StreamState:
    for name, (fits, what) in _STREAM_FORM.items():
        if name not in each:
            raise ValueError(f"this state is truncated: one of its 'streams' has no {name!r}")
        if not fits(each[name]):
            raise ValueError(
                f"this state is damaged: {name!r} of one of its 'streams' should be {what}, but is {each[name]!r:.80}"
            )
    return StreamState(**{name: each[name] for name in _STREAM_FORM})


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _count_of(value: Any) -> bool:
    return _whole(value) and value >= 0


def _maybe(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _all(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(fits(each) for each in value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _anything(value: Any) -> bool:
    return True


_COUNT = (_count_of, "a count")
_MAYBE_COUNT = (_maybe(_count_of), "a count or None")
_USERS = (_anything, "what the user's code made of it")
_FLAG = (lambda value: isinstance(value, bool), "True or False")

_FORM: dict[str, tuple[Callable[[Any], bool], str]] = {
    "kind": (lambda value: value in ("map", "iterable"), "'map' or 'iterable'"),
    "length": _MAYBE_COUNT,
    "sampler": (_all(_text), "a list of names"),
    "sampler_length": _MAYBE_COUNT,
    "replicas": _MAYBE_COUNT,
    "rank": _MAYBE_COUNT,
    "elastic": _FLAG,
    "batch_size": _MAYBE_COUNT,
    "rng": (_text, "a name"),
    "base_seed": (_whole, "a number"),
    "pipe_seed": (_maybe(_whole), "a number or None"),
    "batches": _COUNT,
    "samples": _COUNT,
    "ahead": (_all(_count_of), "a list of counts"),
    "finished": _FLAG,
    "generators": (
        lambda value: isinstance(value, dict) and all(map(_text, value)),
        "a dict of generator states",
    ),
    "sampler_epoch": (_maybe(_whole), "a number or None"),
    "sampler_state": _USERS,
    "sampler_at": _COUNT,
    "dataset_state": _USERS,
    "streams": (_maybe(_all(lambda value: isinstance(value, dict))), "a list of streams or None"),
    "turn": _COUNT,
}
_STREAM_FORM: dict[str, tuple[Callable[[Any], bool], str]] = {
    "pulled": _COUNT,
    "at": _COUNT,
    "dataset": _USERS,
    "iterator": _USERS,
    "ended": _FLAG,
    "begun": _FLAG,
}
