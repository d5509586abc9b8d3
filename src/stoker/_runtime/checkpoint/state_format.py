"""Defines the format of a loader's state: a flat dict of plain values, checked as a whole before it is used.

    state (dict) ──parse──► SavedState ──differences(here)──► what does not fit, in words, with what can be done about it

What it says: which batches of an epoch were handed over, and what it takes to go on. What belongs to the user (states of samplers
and datasets) is carried as it is; everything else can be written as JSON. The keys are always the same, and whatever changes its
shape stands in a tuple: torch.distributed.checkpoint takes dicts apart, and wants to find what it saved.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field, fields
from typing import Any

from stoker._runtime.checkpoint import state_counts, state_fields

VERSION = 1
_MARK = "stoker"
"""The key that holds the format's version, and tells such a dict from others."""


@dataclass(frozen=True, slots=True)
class LoaderFacts:
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
class SavedState:
    """A state that is whole. Batches with numbers below ``batches`` were handed over, and those in ``ahead``."""

    facts: LoaderFacts
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
    receipt: str | None = None
    """What was handed over so far, for receipts of the rest. None in states of earlier versions."""
    resized_at: tuple[int, int] | None = None
    """The batches and samples behind which all batches have this size; (0, 0) unless an epoch went on in another size.

    None where it is not known.
    """
    not_in_receipt: int | None = None
    """How many batches the receipt does not count, such as those that an earlier state had ``ahead``; None where not known."""


_FACTS = tuple(each.name for each in fields(LoaderFacts))
_REST = tuple(each.name for each in fields(SavedState) if each.name != "facts")


def dump(saved: SavedState) -> dict[str, Any]:
    """A fresh dict."""
    state: dict[str, Any] = {_MARK: VERSION}
    for name in _FACTS:
        state[name] = getattr(saved.facts, name)
    for name in _REST:
        state[name] = getattr(saved, name)
    state["sampler"] = list(saved.facts.sampler)
    state["ahead"] = list(saved.ahead)
    state["generators"] = {
        key: value if isinstance(value, str) else value.copy() for key, value in saved.generators.items()
    }
    if saved.streams is not None:
        state["streams"] = tuple(
            {name: getattr(each, name) for name in state_fields.STREAM} for each in saved.streams
        )
    for name in state_fields.BOXED:
        state[name] = (state[name],)
    return state


def parse(state: Any) -> SavedState:
    """The state as it was dumped. Raises ValueError for anything else, and says what is wrong with it."""
    if not isinstance(state, dict):
        raise ValueError(
            f"a state of a loader is a dict as state_dict() returns it, but got {type(state).__name__}"
        )
    if _MARK not in state:
        raise ValueError(_foreign(state))
    if not _is_version(state[_MARK]):
        raise ValueError(
            f"this state has format {reprlib.repr(state[_MARK])}, and this version of stoker reads format {VERSION}: load it with "
            "the stoker that saved it, or begin the epoch anew without it"
        )
    values = _read(state, state_fields.STATE, "")
    facts = LoaderFacts(**{name: values.pop(name) for name in _FACTS})
    streams = values.pop("streams")
    if streams is not None:
        streams = tuple(
            StreamState(**_read(each, state_fields.STREAM, " of one of its 'streams'")) for each in streams
        )
    saved = SavedState(facts=facts, streams=streams, **values)
    contradiction = _contradiction(saved)
    if contradiction:
        raise ValueError(f"this state is damaged: {contradiction}")
    return saved


def _is_version(value: Any) -> bool:
    try:
        return state_fields.whole(value) == VERSION
    except Exception:
        return False


def _read(
    state: dict[str, Any], wanted: dict[str, tuple[state_fields.Reader, str]], where: str
) -> dict[str, Any]:
    """All entries that are wanted, as plain values."""
    values = {}
    for name, (read, what) in wanted.items():
        if name not in state and name in state_fields.OPTIONAL:
            continue
        if name not in state:
            raise ValueError(
                f"this state is truncated: {name!r}{where} is missing. Load one that was kept as state_dict() returned it"
            )
        try:
            values[name] = read(state[name])
        except Exception:
            raise ValueError(
                f"this state is damaged: {name!r}{where} should be {what}, but is {reprlib.repr(state[name])}"
            ) from None
    return values


def _contradiction(saved: SavedState) -> str:
    """Find entries of a state that contradict each other."""
    if any(number < saved.batches for number in saved.ahead):
        return "'ahead' names batches that 'batches' has counted already"
    if len(set(saved.ahead)) < len(saved.ahead):
        return "'ahead' names a batch twice"
    if saved.sampler_at > saved.batches:
        return f"'sampler_at' lies beyond 'batches': {saved.sampler_at} and {saved.batches}"
    if saved.finished and (saved.batches or saved.samples or saved.ahead):
        return (
            f"its epoch is 'finished', and {saved.batches} 'batches' of the next one were handed over already"
        )
    if (saved.streams is not None) != (saved.facts.kind == "iterable"):
        return "'streams' belong to iterable datasets, and to no others"
    if saved.streams is not None:
        return _stream_contradiction(saved, saved.streams) or state_counts.contradiction(saved)
    return state_counts.contradiction(saved)


def _stream_contradiction(saved: SavedState, streams: tuple[StreamState, ...]) -> str:
    if saved.dataset_state is not None:
        return "'dataset_state' belongs to map-style datasets; those of iterable ones are in 'streams'"
    if not streams:
        return "'streams' is empty"
    if any(each.at > each.pulled for each in streams):
        return "one of its 'streams' has a state from beyond what was pulled"
    if sum(each.pulled for each in streams) > saved.batches:
        return "its 'streams' were pulled more often than 'batches' counts"
    if saved.turn >= len(streams):
        return f"'turn' is {saved.turn}, and it has {len(streams)} 'streams'"
    if saved.ahead:
        return "'ahead' belongs to map-style datasets, and its dataset is iterable-style"
    return ""


def differences(saved: SavedState, here: LoaderFacts) -> list[str]:
    """The reasons why a state cannot be loaded: one sentence each, with a remedy."""
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


def _may_rebatch(saved: SavedState, here: LoaderFacts) -> bool:
    """Whether the epoch can go on in batches of another size: its samples were handed over up to one point of the order."""
    sizes = saved.facts.batch_size, here.batch_size
    return saved.facts.kind == "map" and None not in sizes and not saved.ahead


def _why_not_rebatch(saved: SavedState) -> str:
    if saved.facts.kind == "iterable":
        return "streams are counted in batches"
    if saved.ahead:
        return "batches were handed over out of order"
    return "one of them is without automatic batching"


def _foreign(state: dict[Any, Any]) -> str:
    names = ", ".join(reprlib.repr(name) for name in list(state)[:6])
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
