"""Captures and restores random generators, so that a sampler gives the same order again.

Two kinds: generators that the loader or its samplers were given, which belong to them, and the global ones, which belong to the
trainer and are only borrowed: put back as found when the sampler has been brought to its place.
"""

from __future__ import annotations

import base64
import math
import random
import struct
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, Dataset, RandomSampler, SequentialSampler, SubsetRandomSampler
from torch.utils.data import WeightedRandomSampler as Weighted
from torch.utils.data import dataloader as torch_loader
from torch.utils.data.distributed import DistributedSampler

from stoker._pickling.attributes import follow, spell_path
from stoker._runtime.plan.nested_samplers import layers
from stoker._runtime.worker.rng import dataset_generators, generators

TORCH, PYTHON, NUMPY = "torch", "python", "numpy"
_WORDS = struct.Struct("<625Id")
_NUMPY = struct.Struct("<624IiId")
_MOST_BYTES = 1 << 16
_QUIET = (SequentialSampler, torch_loader._InfiniteConstantSampler, list, tuple, range)


@dataclass(frozen=True, slots=True)
class RngSnapshot:
    """``given`` are states of the generators that belong to the loader, ``world`` those of global ones, by name."""

    given: tuple[torch.Tensor, ...] = ()
    world: tuple[tuple[str, Any], ...] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RngSnapshot) or len(self.given) != len(other.given):
            return False
        mine, others = dict(self.world), dict(other.world)
        return (
            mine.keys() == others.keys()
            and all(map(torch.equal, self.given, other.given))
            and all(_same(state, others[name]) for name, state in mine.items())
        )

    __hash__ = None  # type: ignore[assignment]


def generators_of(loader: Any) -> list[torch.Generator]:
    """The generators that were given to a loader, its batch sampler or its sampler, or to one inside them."""
    found: dict[int, torch.Generator] = {}
    for owner in (loader, *layers(loader._index_sampler), loader.sampler):
        generator = getattr(owner, "generator", None)
        if generator is not None and isinstance(generator, torch.Generator):  # which is slow to say no
            found.setdefault(id(generator), generator)
    return list(found.values())


def left_out(loader: Any) -> str | None:
    """A generator that a sampler without a state of its own holds, and that is not among those above; None when there is none."""
    outer = loader._index_sampler
    if any(callable(getattr(part, "state_dict", None)) for part in layers(outer)):
        return None
    told = {id(generator) for generator in generators_of(loader)}
    for path, _ in dataset_generators.find(outer, apart=loader.dataset):
        held = follow(outer, path)
        of_data = any(isinstance(follow(outer, path[:step]), Dataset) for step in range(len(path)))
        if id(held) not in told and not of_data and not generators.is_global(held):
            return spell_path("batch_sampler" if loader.batch_sampler is outer else "sampler", path)
    return None


def draws_from(index_sampler: Any) -> tuple[str, ...]:
    """The global generators that a sampler may draw from, as far as its kind tells."""
    sampler: Any = index_sampler.sampler if type(index_sampler) is BatchSampler else index_sampler
    if isinstance(sampler, DistributedSampler) or type(sampler) in _QUIET:
        return ()
    if type(sampler) in (RandomSampler, SubsetRandomSampler, Weighted):
        return () if sampler.generator is not None else (TORCH,)
    return (TORCH, PYTHON, NUMPY)


def capture(given: Sequence[torch.Generator], world: Sequence[str]) -> RngSnapshot:
    """The generators as they stand now."""
    return RngSnapshot(
        tuple([generator.get_state() for generator in given]),
        tuple([(name, _read(name)) for name in world]),
    )


def unmoved(snapshot: RngSnapshot, *, seeded: bool) -> frozenset[str]:
    """The global generators that stand where they stood; ``seeded``: or where torch's stood after a base seed was drawn from it."""
    then = dict(snapshot.world)
    names = {name for name, state in then.items() if _same(state, _read(name))}
    if seeded and TORCH in then:
        generator = torch.Generator()
        generator.set_state(then[TORCH])
        torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator)
        if torch.equal(generator.get_state(), torch.default_generator.get_state()):
            names.add(TORCH)
    return frozenset(names)


@contextmanager
def replayed(
    snapshot: RngSnapshot, given: Sequence[torch.Generator], but_for: Collection[str] = ()
) -> Iterator[None]:
    """Have all generators stand where they stood; afterwards the global ones, ``but_for`` some, are as they were found."""
    found = [(name, _read(name)) for name, _ in snapshot.world if name not in but_for]
    try:
        restore(snapshot, given)
        yield
    finally:
        for name, state in found:
            _write(name, state)


def restore(snapshot: RngSnapshot, given: Sequence[torch.Generator]) -> None:
    """Set all of them, for good."""
    for generator, state in zip(given, snapshot.given, strict=True):
        generator.set_state(state)
    put(snapshot)


def put(snapshot: RngSnapshot) -> None:
    """Set the global generators."""
    for name, state in snapshot.world:
        _write(name, state)


def _read(name: str) -> Any:
    if name == TORCH:
        return torch.default_generator.get_state()
    return random.getstate() if name == PYTHON else np.random.get_state(legacy=False)


def _same(state: Any, other: Any) -> bool:
    """Whether two states of one of the global generators are the same."""
    if isinstance(state, torch.Tensor):
        return torch.equal(state, other)
    if not isinstance(state, dict):
        return bool(state == other)
    if state["bit_generator"] != "MT19937" or other["bit_generator"] != "MT19937":
        return False
    bits, others = state["state"], other["state"]
    rest = [(each["state"]["pos"], each["has_gauss"], each["gauss"]) for each in (state, other)]
    return rest[0] == rest[1] and np.array_equal(bits["key"], others["key"])


def _write(name: str, state: Any) -> None:
    if name == TORCH:
        torch.default_generator.set_state(state)
    elif name == PYTHON:
        random.setstate(state)
    else:
        np.random.set_state(state)


def encode(snapshot: RngSnapshot) -> dict[str, Any]:
    """As texts, for a state that can be written as JSON."""
    texts: dict[str, Any] = {"given": [_text(_bytes(state)) for state in snapshot.given]}
    for name, state in snapshot.world:
        if name == TORCH:
            texts[name] = _text(_bytes(state))
        elif name == PYTHON:
            gauss = math.nan if state[2] is None else state[2]
            texts[name] = _text(_WORDS.pack(*state[1], gauss))
        elif state["bit_generator"] == "MT19937":  # somebody may have put another one behind np.random
            bits = state["state"]
            words = (*bits["key"].tolist(), bits["pos"], state["has_gauss"], state["gauss"])
            texts[name] = _text(_NUMPY.pack(*words))
    return texts


class OtherGenerators(ValueError):
    """A state was saved with other generators than there are here."""


def decode(texts: dict[str, Any], given: Sequence[torch.Generator]) -> RngSnapshot:
    """What ``encode`` made, for these generators. Raises ValueError when it is damaged, OtherGenerators when it is for others."""
    states = [_tensor(text) for text in texts["given"]]
    world = []
    for name in (TORCH, PYTHON, NUMPY):
        if name in texts:
            try:
                world.append((name, _DECODE[name](texts[name])))
            except Exception as error:
                raise ValueError(
                    f"this state is damaged: the state of {name}'s generator cannot be read ({error})"
                ) from error
    if len(states) != len(given):
        raise OtherGenerators(
            f"this state was saved with {len(states)} generator(s) given to the loader and its samplers, and here there are "
            f"{len(given)}: give the loader a generator= as it had then, or begin the epoch anew"
        )
    for generator, state in zip(given, states, strict=True):
        try:
            torch.Generator(generator.device).set_state(state)  # a trial
        except Exception as error:
            raise OtherGenerators(
                f"this state was saved with another kind of generator than the one on {generator.device} that the loader or its "
                f"sampler has here ({error}): give it one like it, or begin the epoch anew"
            ) from error
    return RngSnapshot(tuple(states), tuple(world))


def read_pulled(texts: dict[str, Any], given: Sequence[torch.Generator]) -> RngSnapshot:
    """How generators stood when the sampler was first pulled, if that is known of those that were given."""
    return decode(texts, given if texts["given"] else ())


def put_pulled(texts: dict[str, Any], given: Sequence[torch.Generator]) -> None:
    """Set them so."""
    restore(read_pulled(texts, given), given if texts["given"] else ())


def _of_torch(text: str) -> torch.Tensor:
    state = _tensor(text)
    torch.Generator().set_state(state)
    return state


def _of_python(text: str) -> Any:
    *words, gauss = _WORDS.unpack(_raw(text))
    state = (3, tuple(words), None if math.isnan(gauss) else gauss)
    random.Random().setstate(state)
    return state


def _of_numpy(text: str) -> Any:
    *keys, at, has_gauss, gauss = _NUMPY.unpack(_raw(text))
    bits = {"key": np.array(keys, np.uint32), "pos": at}
    state: Any = {"bit_generator": "MT19937", "state": bits, "has_gauss": has_gauss, "gauss": gauss}
    np.random.RandomState().set_state(state)
    return state


_DECODE = {TORCH: _of_torch, PYTHON: _of_python, NUMPY: _of_numpy}


def _bytes(state: torch.Tensor) -> bytes:
    return state.numpy().tobytes()


def _tensor(text: str) -> torch.Tensor:
    try:
        return torch.frombuffer(bytearray(_raw(text)), dtype=torch.uint8)
    except Exception as error:
        raise ValueError(f"this state is damaged: a generator's state cannot be read ({error})") from error


def _text(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw)).decode()


def _raw(text: str) -> bytes:
    """What a text holds; the longest state of any generator is far below the limit."""
    unpack = zlib.decompressobj()
    raw = unpack.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
    if not unpack.eof:
        raise ValueError("it is cut short, or too long")
    return raw
