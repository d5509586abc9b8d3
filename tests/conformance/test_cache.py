"""Batches with and without the cache are the same bit for bit, for every executor and start method, and after a resume."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset

import stoker
from stoker._runtime.cache.counters import counters


class Shift:
    """Adds what no draw decides."""

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        return value + 1


class RandomScale:
    """Draws from three generators."""

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        return value * random.random() + float(np.random.rand()) + torch.rand(3)


class OwnScale:
    """Draws from the generator of the sample, so threads do not take numbers from each other."""

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        return value * float(stoker.generator().random())


class Compose:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, value: Any) -> Any:
        for each in self.transforms:
            value = each(value)
        return value


def load(index: int) -> torch.Tensor:
    return torch.arange(3.0) + index


class Pictures(Dataset[Any]):
    def __init__(self, *transforms: Any) -> None:
        self.loader: Any = load
        self.transform: Any = Compose(list(transforms))

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return {"x": self.transform(self.loader(index)), "y": index, "name": f"n{index}"}


def whole() -> Any:
    return Pictures(Shift())


def augmented() -> Any:
    return Pictures(Shift(), RandomScale())


def kept_decoder() -> Any:
    pictures = augmented()
    pictures.loader = stoker.cached(pictures.loader, "1MiB")
    return pictures


KINDS = {
    "whole": (whole, lambda: stoker.cache(whole(), "1MiB", verify=0.3)),
    "subset": (
        lambda: Subset(whole(), range(5, 35)),
        lambda: Subset(stoker.cache(whole(), "1MiB"), range(5, 35)),
    ),
    "before": (augmented, lambda: stoker.cache(augmented(), "1MiB", before="transform")),
    "decoder": (augmented, kept_decoder),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "inline": {"num_workers": 0},
    "threads": {"num_workers": 2, "executor": "thread"},
    "fork": {"num_workers": 2, "multiprocessing_context": "fork"},
    "persistent": {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
    "fetch threads": {"num_workers": 1, "multiprocessing_context": "fork", "threads_per_worker": 2},
    "skip": {"num_workers": 2, "multiprocessing_context": "fork", "on_bad_sample": "skip"},
    "spawn": {"num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True},
    "forkserver": {"num_workers": 2, "multiprocessing_context": "forkserver", "persistent_workers": True},
}


def batches(dataset: Any, epochs: int = 3, **setting: Any) -> list[dict[str, Any]]:
    torch.manual_seed(3)
    found = []
    with stoker.DataLoader(dataset, batch_size=8, shuffle=True, **setting) as loader:
        for _ in range(epochs):
            found += [
                {
                    name: part.clone() if isinstance(part, torch.Tensor) else part
                    for name, part in batch.items()
                }
                for batch in loader
            ]
    return found


def require_same(one: list[dict[str, Any]], two: list[dict[str, Any]]) -> None:
    assert len(one) == len(two)
    for first, second in zip(one, two, strict=True):
        assert first["name"] == second["name"]
        assert torch.equal(first["x"], second["x"])
        assert torch.equal(first["y"], second["y"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_batches_are_the_same_bit_for_bit(setting: str, kind: str) -> None:
    plain, cached = KINDS[kind]
    if kind in ("before", "decoder") and setting in ("threads", "fetch threads"):
        pytest.skip("the transform draws from generators that threads share")
    if setting in ("spawn", "forkserver") and kind == "subset":
        pytest.skip("as whole")
    require_same(batches(cached(), **SETTINGS[setting]), batches(plain()))


def _kept_decoder(pictures: Pictures) -> Pictures:
    pictures.loader = stoker.cached(pictures.loader, "1MiB")
    return pictures


@pytest.mark.parametrize("kind", ["before", "decoder"])
@pytest.mark.parametrize("setting", ["inline", "threads", "fork", "fetch threads"])
def test_random_parts_have_their_own_numbers_whoever_makes_them(setting: str, kind: str) -> None:
    """Also in threads, where only generators of the sample are each thread's own."""
    expected = batches(Pictures(Shift(), OwnScale()), rng="sample")
    pictures: Any = Pictures(Shift(), OwnScale())
    cached = (
        stoker.cache(pictures, "1MiB", before="transform") if kind == "before" else _kept_decoder(pictures)
    )
    require_same(batches(cached, rng="sample", **SETTINGS[setting]), expected)


def test_a_resumed_epoch_goes_on_bit_for_bit() -> None:
    expected = batches(augmented(), epochs=1)
    cached = stoker.cache(augmented(), "1MiB", before="transform")
    torch.manual_seed(3)
    with stoker.DataLoader(cached, batch_size=8, shuffle=True, num_workers=2) as loader:
        iterator = iter(loader)
        found = [next(iterator) for _ in range(2)]
        state = loader.state_dict()
    with stoker.DataLoader(cached, batch_size=8, shuffle=True, num_workers=1) as loader:
        loader.load_state_dict(state)
        found += list(loader)
    require_same(found, expected)


def test_the_second_epoch_makes_nothing_again() -> None:
    cached = stoker.cache(whole(), "1MiB")
    with stoker.DataLoader(cached, batch_size=8, num_workers=2) as loader:
        list(loader)
        list(loader)
        found = loader.stats()["cache"]
    assert (found["hits"], found["misses"], found["passed"]) == (40, 40, 0)
    assert cached.cache_info()["entries"] == 40


def change(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A collate function that changes samples in place, and keeps one as it is."""
    rows[0]["x"] += 1000
    return {
        "x": rows[0]["x"],
        "y": torch.tensor([row["y"] for row in rows]),
        "name": [row["name"] for row in rows],
    }


def test_samples_that_are_changed_in_place_change_no_other() -> None:
    expected = batches(whole(), collate_fn=change)
    for setting in ("inline", "persistent"):
        cached = stoker.cache(whole(), "1MiB")
        require_same(batches(cached, collate_fn=change, **SETTINGS[setting]), expected)


def test_the_batches_of_torchs_own_collation_are_the_users() -> None:
    cached = stoker.cache(whole(), "1MiB")
    loader = stoker.DataLoader(cached, batch_size=1)
    for batch in [*loader, *loader]:
        batch["x"].zero_()
    before = counters().totals()
    assert torch.equal(cached[3]["x"], torch.arange(3.0) + 4)
    assert counters().totals().hits == before.hits + 1


class Scanner:
    """Holds what cannot be read, and is sent to workers all the same."""

    def __init__(self) -> None:
        self.__setstate__(None)

    def __getstate__(self) -> str:
        return "scanner"

    def __setstate__(self, state: Any) -> None:
        pattern: Any = re.compile("a")
        self.scanner = pattern.scanner("a")


@pytest.mark.parametrize("setting", ["fork", "persistent", "spawn"])
def test_workers_share_a_store_for_what_has_no_identity_and_other_caches_do_not(setting: str) -> None:
    first, second = (Pictures(Shift()) for _ in range(2))
    first.scanner = second.scanner = Scanner()  # type: ignore[attr-defined]
    caches = [stoker.cache(each, "1MiB") for each in (first, second)]
    assert caches[0]._handle.plan.token != caches[1]._handle.plan.token
    with stoker.DataLoader(caches[0], batch_size=8, **SETTINGS[setting]) as loader:
        list(loader)
        list(loader)
        found = loader.stats()["cache"]
    assert (found["hits"], found["misses"], found["passed"]) == (40, 40, 0)
    assert [each.cache_info()["entries"] for each in caches] == [40, 0]


ORDINARY = """
import contextvars, dataclasses, enum, functools, itertools, logging, re, struct, sys, threading, typing, weakref
from concurrent.futures import ThreadPoolExecutor
import numpy as np, torch
from stoker._runtime.cache.identity import of_dataset

HEADER, PATTERN, LOCK, VAR = struct.Struct("<I"), re.compile("a"), threading.Lock(), contextvars.ContextVar("v")
LOG, POOL, T, COUNT = logging.getLogger("x"), ThreadPoolExecutor(1), typing.TypeVar("T"), itertools.count()
WEAK, DTYPE, ALIAS = weakref.WeakValueDictionary(), np.dtype([("a", "<i4")]), dict[str, int]
NAMES, ONE, NORM = {"a", "b", "c", "dd", "e"}, object(), torch.nn.functional.normalize

class Color(enum.Enum):
    RED = 1

class Pair(typing.NamedTuple):
    x: int

@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    x: int = 1
    y: list = dataclasses.field(default_factory=list)

@functools.lru_cache(3)
def kept(x):
    return x

class Rows(torch.utils.data.Dataset, typing.Generic[T]):
    def __init__(self):
        self.held = [Row(), Pair(1), Color.RED, functools.partial(kept, 1), np.mean, np.add]
        self.more = [set("abcdef"), lambda x: x in {"a", "b"}]
    @functools.cached_property
    def first(self):
        return HEADER, PATTERN, LOCK, VAR, LOG, POOL, T, COUNT, WEAK, DTYPE, ALIAS, NAMES, ONE, NORM
    @torch.no_grad()
    def __getitem__(self, index):
        return Row, Pair, Color, kept, self.first

found = of_dataset(Rows())
print(found.opaque, found.whole().hex())
"""


def test_ordinary_code_can_be_read_and_is_the_same_in_another_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ORDINARY)
    said = [
        subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert said[0].startswith("{} ")
