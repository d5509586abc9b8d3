"""Undoes ``load_state_dict`` of a dataset that would begin at the loaded place again in every later epoch.

Datasets keep a loaded state in two ways. Some go on from it, and begin anew when they reach their end. Others keep the place where
to begin, as Hugging Face's iterable datasets do: the epochs after the resumed one then lack its first samples, too. The state after
the first sample of an epoch tells which kind it is.
"""

from __future__ import annotations

import copy
import logging
import pickle
import weakref
from typing import Any

import numpy as np
import torch

from stoker._pickling.attributes import MISSING, write
from stoker._runtime.dataset_sync.snapshot import AttributeChange, Snapshot

_log = logging.getLogger("stoker")

ENDED = object()
"""In place of states: the epoch had no sample."""


def load(dataset: Any, state: bytes, *, at_start: bool) -> None:
    """Load a pickled state. ``at_start``: an epoch begins after it, so the next one that is read should not be over at once."""
    earlier = _loaded.pop(id(dataset), None)
    if earlier is not None:
        earlier.undo()  # this one is undone to how the dataset was before both
    loaded = LoadedState(dataset, state, at_start=at_start)
    try:
        weakref.finalize(dataset, _loaded.pop, id(dataset), None).atexit = False
    except TypeError:  # it cannot be referred to weakly
        pass
    else:
        _loaded[id(dataset)] = loaded
    loaded.load(dataset, state)


def is_watched(dataset: Any) -> bool:
    """Whether ``begins_again`` is to be asked after the first sample of the epoch that begins."""
    return id(dataset) in _loaded


def begins_again(dataset: Any, states: Any) -> bool:
    """Whether a new epoch begins at the loaded place. The loading has then been undone: open the dataset again.

    Called after the first sample of an epoch. ``states`` are those of the dataset and its iterator then, or ENDED.
    """
    loaded = _loaded.get(id(dataset))
    if loaded is None:
        return False
    again = loaded.begins_again(states)
    if loaded.is_decided:
        _loaded.pop(id(dataset), None)
    return again


def undo(dataset: Any) -> bool:
    """Set the dataset back to before a loading that raised, or after which it raised. False if that is not possible."""
    loaded = _loaded.pop(id(dataset), None)
    return loaded is not None and loaded.set_back(dataset)


class LoadedState:
    """A state that was loaded into a dataset in this process, until it is known how the dataset keeps it."""

    def __init__(self, dataset: Any, state: bytes, *, at_start: bool) -> None:
        self.is_decided = False
        self._kind = type(dataset).__name__
        self._at_start = at_start
        self._first: Any = None
        """States after the first sample of the epoch that was taken up."""
        self._undone = False
        self._state = pickle.loads(state)
        self._before = Snapshot(dataset)
        self._was = _state_of(dataset)
        self._changes: list[tuple[AttributeChange, Any]] = []

    def load(self, dataset: Any, state: bytes) -> None:
        """Load it. Called once."""
        dataset.load_state_dict(pickle.loads(state))
        self._changes = [
            (change, change.holder.recorded().get(change.name, MISSING)) for change in self._before.changes()
        ]

    def set_back(self, dataset: Any) -> bool:
        """Set all attributes to what they were before. False if its state shows that this is not all that was loaded."""
        self._before.restore()
        return same(_state_of(dataset), self._was)

    def begins_again(self, states: Any) -> bool:
        """Whether this epoch began where the state was loaded, but should not have."""
        if self._undone:
            if same(states, self._first):
                _log.warning(
                    "%s begins at the state that was loaded into it again in every epoch, so that they all lack the samples before "
                    "it: let its __iter__ begin at that place once, and anew after that",
                    self._kind,
                )
        elif self._first is None:
            if not self._at_start:
                self._first = states
                # A dataset whose state does not move with its samples tells nothing.
                self.is_decided = states is not ENDED and same(states[0], self._state)
                return False
            if states is ENDED:
                self.undo()
                self.is_decided = True
                return True
        elif same(states, self._first):
            self.undo()
            self._undone = True
            return True
        self.is_decided = True
        return False

    def undo(self) -> None:
        """Set attributes to what they were before, if they still have the values that were loaded."""
        changed = {id(change.holder): change.holder for change, _ in self._changes}
        now = {key: dict(zip(*holder.present(), strict=True)) for key, holder in changed.items()}
        for change, was in self._changes:
            if now[id(change.holder)].get(change.name, MISSING) is change.value:
                write(change.holder.obj, change.name, was)


def _state_of(dataset: Any) -> Any:
    """A copy of its state; None if it has none before it is iterated."""
    try:
        return copy.deepcopy(dataset.state_dict())
    except Exception:
        return None


_loaded: dict[int, LoadedState] = {}
"""By the identity of the dataset. Without workers, each epoch has a stream of its own over the same dataset."""


def same(one: Any, other: Any) -> bool:
    """Whether two states say the same."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    try:
        return bool(one == other)
    except Exception:  # whatever its class makes of ==
        return False
