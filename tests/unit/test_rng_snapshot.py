"""Generators written down, put back, and borrowed."""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from stoker._runtime.checkpoint import rng_snapshot
from stoker._runtime.checkpoint.rng_snapshot import NUMPY, PYTHON, TORCH, OtherGenerators

ALL = (TORCH, PYTHON, NUMPY)


@pytest.fixture(autouse=True)
def _known_world() -> None:
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)


def drawn() -> list[float]:
    return [torch.rand(()).item(), random.gauss(0, 1), float(np.random.normal())]


def test_generators_are_put_back_where_they_stood() -> None:
    generator = torch.Generator().manual_seed(4)
    drawn()  # gauss and normal make two numbers at a time and keep one
    then = rng_snapshot.capture([generator], ALL)
    expected = [*drawn(), torch.rand((), generator=generator).item()]
    texts = json.loads(json.dumps(rng_snapshot.encode(then)))
    rng_snapshot.restore(rng_snapshot.decode(texts, [generator]), [generator])
    assert [*drawn(), torch.rand((), generator=generator).item()] == expected
    assert rng_snapshot.decode(texts, [generator]) == then


def test_global_generators_are_only_borrowed() -> None:
    then = rng_snapshot.capture((), ALL)
    expected = drawn()
    now = rng_snapshot.capture((), ALL)
    with pytest.raises(KeyError), rng_snapshot.replayed(then, ()):
        assert drawn() == expected
        raise KeyError
    assert rng_snapshot.capture((), ALL) == now
    with rng_snapshot.replayed(then, (), but_for=(TORCH,)):
        assert drawn() == expected
        drawn()
    left = rng_snapshot.unmoved(now, seeded=False)
    assert left == {PYTHON, NUMPY}


def test_unmoved_also_where_only_a_seed_was_drawn() -> None:
    then = rng_snapshot.capture((), ALL)
    assert rng_snapshot.unmoved(then, seeded=False) == set(ALL)
    torch.empty((), dtype=torch.int64).random_()
    assert rng_snapshot.unmoved(then, seeded=False) == {PYTHON, NUMPY}
    assert rng_snapshot.unmoved(then, seeded=True) == set(ALL)


def packed(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw)).decode()


BROKEN: list[str] = [
    "",
    "x",
    "é",
    "eA==",
    packed(b""),
    packed(b"short"),
    packed(bytes(1 << 26)),
    packed(bytes(5056))[:-8],
]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_texts_that_hold_no_state_are_refused(name: str, text: str) -> None:
    with pytest.raises(
        ValueError, match=f"this state is damaged: the state of {name}'s generator cannot be read"
    ):
        rng_snapshot.decode({"given": [], name: text}, ())


def test_given_generators_have_to_fit() -> None:
    generator = torch.Generator()
    texts = rng_snapshot.encode(rng_snapshot.capture([generator], ()))
    with pytest.raises(
        OtherGenerators, match=r"saved with 1 generator\(s\) .* here there are 0: give the loader"
    ):
        rng_snapshot.decode(texts, ())
    with pytest.raises(OtherGenerators, match=r"saved with 0 generator\(s\) .* here there are 1"):
        rng_snapshot.decode({"given": []}, [generator])
    with pytest.raises(OtherGenerators, match="another kind of generator than the one on cpu"):
        rng_snapshot.decode({"given": [packed(bytes(16))]}, [generator])
    with pytest.raises(ValueError, match="this state is damaged"):
        rng_snapshot.decode({"given": ["x"]}, [generator])


class Own:
    generator = np.random.default_rng(3)

    def __iter__(self) -> Any:
        return iter(())


SAMPLERS: list[tuple[Callable[[], Any], tuple[str, ...]]] = [
    (lambda: SequentialSampler(range(3)), ()),
    (lambda: [0, 1], ()),
    (lambda: RandomSampler(range(3)), (TORCH,)),
    (lambda: RandomSampler(range(3), generator=torch.Generator()), ()),
    (lambda: SubsetRandomSampler([1]), (TORCH,)),
    (lambda: WeightedRandomSampler([1.0], 2), (TORCH,)),
    (lambda: DistributedSampler(range(3), 2, 0), ()),  # type: ignore[arg-type]
    (Own, ALL),
]


@pytest.mark.parametrize(("make", "names"), SAMPLERS, ids=range(len(SAMPLERS)))
def test_what_samplers_draw_from(make: Callable[[], Any], names: tuple[str, ...]) -> None:
    assert rng_snapshot.draws_from(make()) == names
    assert rng_snapshot.draws_from(BatchSampler(make(), 2, False)) == names


def test_generators_are_found_once_each() -> None:
    one, other = torch.Generator(), torch.Generator()

    class Loader:
        generator = one
        sampler = RandomSampler(range(3), generator=other)
        _index_sampler = BatchSampler(sampler, 2, False)

    assert rng_snapshot.generators_of(Loader) == [one, other]
    Loader.sampler.generator = one
    assert rng_snapshot.generators_of(Loader) == [one]
    Loader.sampler.generator = np.random.default_rng(3)
    assert rng_snapshot.generators_of(Loader) == [one]
