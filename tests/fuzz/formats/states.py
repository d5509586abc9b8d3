"""States of loaders, as JSON keeps them: loaded, and then a part of the epoch is iterated without workers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.utils.data import IterableDataset, Sampler

import stoker
from tests.fuzz import mutation
from tests.fuzz.format import Format

SIZE = 20


class Cursor:
    """Counts to the end, and says where it is. A state that it does not know is a ValueError."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Any:
        while self.at < SIZE:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        if not isinstance(state, dict) or type(state.get("at")) is not int or not 0 <= state["at"] <= SIZE:
            raise ValueError("no state of mine")
        self.at = state["at"]


class CursorStream(Cursor, IterableDataset[int]):
    """As a dataset."""


class CursorSampler(Cursor, Sampler[int]):
    """As a sampler."""

    def __len__(self) -> int:
        return SIZE


def _plain(**arguments: Any) -> Any:
    return stoker.DataLoader(range(SIZE), batch_size=3, **arguments)  # type: ignore[arg-type]


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: _plain(shuffle=True, generator=torch.Generator().manual_seed(3)),
    "sampled": lambda: _plain(sampler=CursorSampler()),
    "elastic": lambda: _plain(sampler=stoker.ElasticDistributedSampler(range(SIZE), num_replicas=2, rank=1)),
    "streamed": lambda: stoker.DataLoader(CursorStream(), batch_size=3),
}


def _states(kind: str) -> list[bytes]:
    found = []
    for taken in (0, 2, 100):
        torch.manual_seed(5)
        loader = LOADERS[kind]()
        for _ in itertools.islice(iter(loader), taken):
            pass
        found.append(json.dumps(loader.state_dict()).encode())
    return found


def _load(kind: str, data: bytes, _: Path) -> None:
    try:
        state = json.loads(data)
    except (ValueError, RecursionError):
        return  # this is json's to refuse
    loader = LOADERS[kind]()
    loader.load_state_dict(state)
    json.dumps(loader.state_dict())
    batches = sum(1 for _ in itertools.islice(iter(loader), 3 * SIZE))
    if batches > SIZE:
        raise AssertionError(f"{batches} batches of {SIZE} samples")
    loader.state_dict()
    loader.receipt()


def _mutate(dice: Random, data: bytes) -> bytes:
    return mutation.dumped(_edited(dice, json.loads(data)))


def _edited(dice: Random, state: Any) -> Any:
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        state = mutation.edited(dice, state)
        if not isinstance(state, dict):
            break
        receipt = state.get("receipt")
        if dice.random() < 0.1 and isinstance(receipt, list) and receipt and isinstance(receipt[0], str):
            text = mutation.any_bytes(dice, receipt[0].encode("utf-8", "replace"))
            state["receipt"] = [text.decode("utf-8", "replace")]
    return state


FORMATS = tuple(
    Format(
        f"state-{kind}",
        partial(_states, kind),
        partial(_load, kind),
        (ValueError,),
        _mutate,
        weight=2,
    )
    for kind in LOADERS
)
