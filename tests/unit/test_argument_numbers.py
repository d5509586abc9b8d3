"""Numbers that no loader can work with are refused by its constructor, in a short sentence that says what is allowed."""

from __future__ import annotations

import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from stoker import DataLoader
from stoker.argument_numbers import MOST_BYTES, MOST_TIMEOUT_S, MOST_WORKERS, parse_bytes, shown

DATA: Any = range(8)
HUGE = 10**400
ENDLESS = 10**5000
NAN, INFINITE = float("nan"), float("inf")
COUNT = 'num_workers should be an int from 0 to 4095 or "auto", but got num_workers='
TIME = f"timeout should be from 0 to {MOST_TIMEOUT_S} seconds, and 0 waits without end, but got timeout="
SIZE = f"batch_size should be a positive integer value up to {sys.maxsize}, but got batch_size="
BITS = "a number with 1329 bits"

REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"num_workers": NAN}, TypeError, COUNT + "nan"),
    ({"num_workers": INFINITE}, TypeError, COUNT + "inf"),
    ({"num_workers": 1.5}, TypeError, COUNT + "1.5"),
    ({"num_workers": Decimal("1.5")}, TypeError, COUNT + "Decimal('1.5')"),
    ({"num_workers": 1e9}, ValueError, "num_workers should be at most 4095, but got num_workers=1000000000.0"),
    ({"num_workers": HUGE}, ValueError, f"num_workers should be at most 4095, but got num_workers={BITS}"),
    ({"num_workers": np.int64(5000)}, ValueError, "num_workers should be at most 4095"),
    ({"timeout": NAN}, ValueError, TIME + "nan"),
    ({"timeout": INFINITE}, ValueError, TIME + "inf"),
    ({"timeout": 1e10}, ValueError, TIME + "10000000000.0"),
    ({"timeout": HUGE}, ValueError, TIME + BITS),
    ({"timeout": NAN, "num_workers": 1}, ValueError, TIME + "nan"),
    ({"batch_size": HUGE}, ValueError, SIZE + BITS),
    ({"batch_size": -ENDLESS}, ValueError, SIZE + "a negative number with 16610 bits"),
    ({"batch_size": sys.maxsize + 1}, ValueError, f"{SIZE}{sys.maxsize + 1}"),
    ({"prefetch_factor": NAN, "num_workers": 1}, ValueError, "prefetch_factor should be a non-negative int or None"),
    ({"memory_budget": "9" * 500}, ValueError, f"memory_budget should be at most {MOST_BYTES} bytes, but got '999"),
    ({"memory_budget": ENDLESS}, ValueError, f"memory_budget should be at most {MOST_BYTES} bytes, but got a number"),
    ({"memory_budget": "9999999999 TB"}, ValueError, f"memory_budget should be at most {MOST_BYTES} bytes"),
    ({"memory_budget": "x" * 5000}, ValueError, "memory_budget should be a number of bytes or a text like '2GiB'"),
    ({"restarts": -ENDLESS}, ValueError, "restarts should be non-negative, but got restarts=a negative number with"),
    ({"threads_per_worker": -ENDLESS}, ValueError, "threads_per_worker should be at least 1"),
    ({"rng": "x" * 5000}, ValueError, "rng should be one of ('batch', 'sample', 'torch'), but got rng='xxx"),
    ({"executor": "x" * 5000}, ValueError, "executor should be one of"),
    ({"num_workers": "x" * 5000}, ValueError, "num_workers should be a number or 'auto', but got num_workers='xxx"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "kind", "words"), REFUSED, ids=[f"{next(iter(each[0]))}-{n}" for n, each in enumerate(REFUSED)]
)
def test_the_constructor_refuses_it_in_a_sentence(
    given: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind) as caught:
        DataLoader(DATA, **given)
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("timeout", [NAN, HUGE])
def test_a_loader_refuses_it_later_too(timeout: float) -> None:
    loader: Any = DataLoader(DATA)
    with pytest.raises(ValueError, match="timeout should be from 0 to"):
        loader.timeout = timeout
    assert len(list(loader)) == 8


@pytest.mark.parametrize("given", [
    {"num_workers": 0.0}, {"num_workers": np.int64(0)}, {"num_workers": Fraction(0)}, {"num_workers": torch.tensor(0)},
    {"num_workers": False}, {"batch_size": sys.maxsize}, {"memory_budget": 1 << 62}, {"memory_budget": "1000000 TB"},
    {"restarts": HUGE}, {"device_prefetch": HUGE}, {"snapshot_every_n_steps": HUGE}, {"threads_per_worker": HUGE},
    {"timeout": MOST_TIMEOUT_S}, {"timeout": 10**9}, {"timeout": 0.5}, {"timeout": Fraction(99, 2)}, {"timeout": Decimal(99)},
    {"timeout": np.float32(99)}, {"timeout": torch.tensor(99.0)},
])  # fmt: skip
def test_what_works_is_still_taken(given: dict[str, Any]) -> None:
    loader: Any = DataLoader(DATA, **given)
    assert sum(batch.sum().item() for batch in loader) == 28


@pytest.mark.parametrize("timeout", [np.float32(99), torch.tensor(99.0), MOST_TIMEOUT_S])
def test_times_that_torch_takes_with_workers(timeout: Any) -> None:
    with DataLoader(DATA, num_workers=1, executor="thread", timeout=timeout) as loader:
        assert len(list(loader)) == 8


@pytest.mark.parametrize(
    "given", [{"num_workers": None}, {"num_workers": 2j}, {"timeout": "3"}, {"timeout": None}]
)
def test_other_types_are_torchs_to_refuse(given: dict[str, Any]) -> None:
    messages = []
    for kind in (DataLoader, torch.utils.data.DataLoader):
        with pytest.raises(TypeError) as caught:
            kind(DATA, **given)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "words"),
    [(3, "3"), (-3, "-3"), ("a", "'a'"), (None, "None"), (1 << 64, "a number with 65 bits"), ([ENDLESS], "a list")],
)  # fmt: skip
def test_a_refused_value_is_shown_in_short(value: Any, words: str) -> None:
    assert shown(value) == words
    assert len(shown("x" * 5000)) < 90
    assert "Unspeakable" in shown(Unspeakable())


def test_the_most_that_is_allowed() -> None:
    assert parse_bytes(MOST_BYTES) == MOST_BYTES
    assert MOST_WORKERS == 4095
    with pytest.raises(ValueError, match="budget should be at most"):
        parse_bytes(MOST_BYTES + 1, "budget")
