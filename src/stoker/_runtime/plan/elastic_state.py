"""Writes and reads how far an elastic sampler is in its epoch, as a small dict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoker._runtime.plan.selection import OrderFacts

VERSION = 1
"""Of the layout, and of the way orders are computed: with another one the same numbers would mean other samples."""
KIND = "stoker.ElasticDistributedSampler"

_COUNTS = ("consumed", "length", "size")
_FIELDS: dict[str, type] = {
    "epoch": int,
    "consumed": int,
    "length": int,
    "seed": int,
    "shuffle": bool,
    "selection": str,
    "size": int,
    "checksum": int,
}


@dataclass(frozen=True, slots=True)
class ElasticProgress:
    """``consumed`` of the ``facts.length`` positions of this epoch have been handed over, on all ranks together."""

    epoch: int
    consumed: int
    seed: int
    shuffle: bool
    facts: OrderFacts

    @property
    def finished(self) -> bool:
        """Whether nothing is left of the epoch."""
        return self.consumed >= self.facts.length

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and texts: JSON can carry it."""
        return {
            "kind": KIND,
            "version": VERSION,
            "epoch": self.epoch,
            "consumed": self.consumed,
            "length": self.facts.length,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "selection": self.facts.selection,
            "size": self.facts.size,
            "checksum": self.facts.checksum,
        }


def read(state: Any) -> ElasticProgress:
    """Read a dict that ``as_dict`` wrote. Raises ValueError for anything else."""
    if not isinstance(state, Mapping):
        raise ValueError(f"a state of {KIND} is a dict, but got {type(state).__name__}")
    if state.get("kind") != KIND:
        found = repr(state["kind"]) if "kind" in state else f"keys {sorted(map(str, state))[:8]}"
        raise ValueError(
            f"this is no state of {KIND}: it has {found}. "
            "States of other samplers cannot be taken over; begin an epoch with set_epoch() instead"
        )
    if state.get("version") != VERSION:
        raise ValueError(
            f"the sampler's state has version {state.get('version')!r} and this stoker reads version {VERSION}: "
            "load it with the stoker that saved it, finish the epoch there, and begin the next with set_epoch()"
        )
    missing = [name for name in _FIELDS if name not in state]
    if missing:
        raise ValueError(f"the sampler's state is not whole: {', '.join(missing)} missing")
    for name, kind in _FIELDS.items():
        if type(state[name]) is not kind:
            raise ValueError(
                f"{name} in the sampler's state should be of type {kind.__name__}, but is {state[name]!r}"
            )
    for name in _COUNTS:
        if state[name] < 0:
            raise ValueError(f"{name} in the sampler's state should not be negative, but is {state[name]}")
    if state["consumed"] > state["length"]:
        raise ValueError(f"the sampler's state has {state['consumed']} of {state['length']} samples consumed")
    if state["selection"] != "weights" and state["length"] != state["size"]:
        raise ValueError(
            f"the sampler's state is at odds with itself: {state['length']} of {state['size']} samples"
        )
    facts = OrderFacts(state["selection"], state["size"], state["length"], state["checksum"])
    return ElasticProgress(state["epoch"], state["consumed"], state["seed"], state["shuffle"], facts)


def compare(saved: ElasticProgress, here: ElasticProgress) -> None:
    """ValueError, with all that differs, when two samplers do not have the same orders. Epoch and how far it came may differ."""
    remedies: list[str] = []
    differences: list[str] = []

    def differ(what: str, was: Any, now: Any, remedy: str) -> None:
        differences.append(f"{what} was {was} and is {now}")
        remedies.append(remedy)

    was, now = saved.facts, here.facts
    if was.selection != now.selection:
        differ("the selection", _words(was), _words(now), "give the sampler the subset or weights it had")
    elif was.size != now.size:
        whose = {"all": "dataset", "subset": "subset"}.get(was.selection, "list of weights")
        differ(f"the length of the {whose}", was.size, now.size, f"give it the {whose} it had")
    elif was.checksum != now.checksum:
        differ("the checksum of the weights", was.checksum, now.checksum, "give it the weights it had")
    if was.selection == now.selection == "weights" and was.length != now.length:
        differ("num_samples", was.length, now.length, f"pass num_samples={was.length}")
    if saved.seed != here.seed:
        differ("seed", saved.seed, here.seed, f"pass seed={saved.seed}")
    if saved.shuffle != here.shuffle:
        differ("shuffle", saved.shuffle, here.shuffle, f"pass shuffle={saved.shuffle}")
    if differences:
        raise ValueError(
            f"this state belongs to another order of samples: {'; '.join(differences)}. To go on from it, "
            f"{' and '.join(remedies)}. To start afresh, load no state and call set_epoch({saved.epoch + 1})"
        )


def _words(facts: OrderFacts) -> str:
    if facts.selection == "all":
        return f"the whole dataset of {facts.size}"
    return f"a subset of {facts.size}" if facts.selection == "subset" else f"{facts.size} weights"
