"""Walks through every interleaving of a tiny world, depth first, visiting each state once.

A world is cloned before each step. Cloning and comparing look at every attribute they find, so that a new attribute
of the scheduler takes part without being named here.
"""

from __future__ import annotations

import enum
from types import MethodType, NoneType
from typing import Any, NamedTuple

from stoker._runtime.scheduler.messages import BatchFailed, BatchReady
from stoker._runtime.scheduler.policy import Policy
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker._runtime.scheduler.slots import SlotState
from stoker._runtime.scheduler.story import TicketState
from stoker._runtime.scheduler.types import SlotRef, Task, Ticket
from tests.model.checked_history import Config, Violation
from tests.model.world import Step, World

# Not part of what a state can do: the wiring, what never changes, the log, and averages beyond "known or not".
_UNSEEN = frozenset({"_handlers", "moves", "policy", "config", "slots", "_slots"})

_PLAIN = frozenset({int, bool, str, NoneType, frozenset})
_FROZEN = frozenset({float, tuple, Task, SlotRef, SlotState, TicketState, Policy, Config})

_DEPTH_LIMIT = 400


class Exploration(NamedTuple):
    """What an exploration saw."""

    states: int
    steps: int
    ends: int


class Counterexample(NamedTuple):
    """The shortest-known way into trouble: replay ``trail`` on a fresh world."""

    trail: tuple[Step, ...]
    problem: str


def explore(config: Config, scheduler_type: type[Scheduler] = Scheduler) -> Exploration | Counterexample:
    """Try everything that can happen in one world; the first violation found ends the search."""
    world = World(config, scheduler_type)
    seen: set[object] = {fingerprint(world)}
    taken = ends = 0
    # One entry per level: the world there, what is still to be tried in it.
    stack: list[tuple[World, list[Step]]] = [(world, world.steps())]
    trail: list[Step] = []
    while stack:
        world, todo = stack[-1]
        if not todo:
            stack.pop()
            if trail:
                trail.pop()
            continue
        step = todo.pop()
        following = clone(world, {}) if todo else world
        trail.append(step)
        taken += 1
        try:
            following.do(step)
            print_ = fingerprint(following)
            if print_ in seen:
                trail.pop()
                continue
            seen.add(print_)
            steps = following.steps()
            if not steps:
                following.check_end()
                ends += 1
            if len(trail) > _DEPTH_LIMIT:
                raise Violation("the run does not come to an end")
        except Violation as error:
            return Counterexample(tuple(trail), str(error))
        stack.append((following, steps))
    return Exploration(len(seen), taken, ends)


def replay(config: Config, trail: tuple[Step, ...], scheduler_type: type[Scheduler] = Scheduler) -> World:
    """A fresh world after these steps, each of which must be possible in its turn."""
    world = World(config, scheduler_type)
    for step in trail:
        assert step in world.steps(), f"{step} cannot happen here; {world.steps()}"
        world.do(step)
    return world


def clone(value: Any, memo: dict[int, Any]) -> Any:
    """A copy that shares only what cannot change. Much cheaper than copy.deepcopy, which walks into tuples."""
    kind = type(value)
    if kind in _PLAIN or kind in _FROZEN:
        return value
    if kind is list:
        return [clone(item, memo) for item in value]
    if kind is dict:
        return {key: clone(item, memo) for key, item in value.items()}
    if kind is set:
        return set(value)
    if kind is MethodType:
        return MethodType(value.__func__, clone(value.__self__, memo))
    if isinstance(value, tuple | enum.Enum | type):
        return value
    copy = memo.get(id(value))
    if copy is None:
        copy = memo[id(value)] = object.__new__(kind)
        for name in _attributes(value):
            item = getattr(value, name)
            setattr(copy, name, item if type(item) in _PLAIN else clone(item, memo))
    return copy


def fingerprint(world: World) -> object:
    """A hashable image of all that decides what a state can do.

    Slots are renamed in the order in which they are met: which one it is makes no difference. Generations are left
    out: a reference to an earlier use of a slot is only ever held by an earlier attempt, which the image tells apart,
    and `World.check` has already refused a state in which that is not so.
    """
    names: dict[int, int] = {}
    image = _image(world, names)
    slots = world.slots
    free = [names.setdefault(index, len(names)) for index in slots._free]
    states = sorted((names.get(index, -1), state.value) for index, state in enumerate(slots._states))
    return (image, tuple(free), tuple(states))


def _image(value: Any, names: dict[int, int]) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is SlotRef:
        return names.setdefault(value[0], len(names))
    if kind is Ticket:  # the rest of it never changes
        return (value.seq, value.excluded)
    if kind is Task:
        ticket, part, attempt, slot, scratch, worker, pull = value
        return (
            ticket.seq,
            ticket.excluded,
            part[0],
            part[1],
            attempt,
            _image(slot, names),
            _image(scratch, names),
            worker,
            pull,
        )
    if kind is BatchReady or kind is BatchFailed:
        return (
            value[0],
            value[1],
            value[2],
            _image(value[4], names),
            _image(value[5], names),
            kind is BatchReady,
        )
    if kind is list or isinstance(value, tuple):
        return tuple([item if type(item) in _PLAIN else _image(item, names) for item in value])
    if kind is dict:
        return tuple([(key, _image(value[key], names)) for key in sorted(value)]) if value else ()
    if kind is set:
        return frozenset(value)
    if isinstance(value, enum.Enum):
        return value.value
    if kind is float:
        return value > 0
    items = [getattr(value, name) for name in _attributes(value) if name not in _UNSEEN]
    return tuple([item if type(item) in _PLAIN else _image(item, names) for item in items])


def _attributes(value: Any) -> Any:
    return value.__dict__ if hasattr(value, "__dict__") else type(value).__slots__
