"""The scan of datasets that do their worst, and of random ones: nothing stops it, and every path leads to what it names."""

from __future__ import annotations

import collections
import functools
import multiprocessing
import random
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.doctor.test_scan import (
    LOCK,
    Dropping,
    Failing,
    Record,
    Reduced,
    Rows,
    Slotted,
    pickles,
    refused,
    scan,
    ships,
)


class Hostile:
    """Every way in raises; all but the last are none of pickling's business."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"do not ask for {name}")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError("do not print")

    def __len__(self) -> int:
        raise RuntimeError("do not measure")

    def __bool__(self) -> bool:
        raise RuntimeError("do not judge")

    def __sizeof__(self) -> int:
        raise RuntimeError("do not weigh")

    @property
    def lazy(self) -> Any:
        raise RuntimeError("do not load")


class Plain(Hostile):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class Lying:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class Endless:
    def __getattr__(self, name: str) -> Any:
        return getattr(self, name + "_")


class Garbled:
    def __reduce__(self) -> Any:
        return 42


class Exiting:
    def __getstate__(self) -> Any:
        sys.exit(3)


class Nested:
    """Reduces to ever more of itself."""

    def __reduce__(self) -> Any:
        return Nested, (Nested(),)


def test_nothing_a_dataset_does_to_itself_stops_the_scan() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    own = Rows(lock=threading.Lock())
    own.self, own.cycle = own, {"c": cycle, "own": own}  # type: ignore[attr-defined]
    assert set(refused(scan(own))) == {"dataset.lock"}
    assert not scan(Rows(a=Plain(), b=[Plain()] * 3)).unsendable
    assert bool(refused(scan(Rows(a=Hostile())))) == (not pickles(Hostile()))
    assert bool(refused(scan(Rows(a=Endless())))) == (not pickles(Endless()))
    for hostile in (Failing(), Garbled(), Exiting()):
        found = scan(Rows(bad=[0, hostile], lock=LOCK))
        assert set(refused(found)) == {"dataset.bad[1]", "dataset.lock"}, hostile
    scan(Rows(a=Lying()))
    assert not scan(Rows(a=Nested())).complete
    scan(Rows(**{"a b": LOCK, "class": 1}))
    assert list(refused(scan(Rows(**{"a b": LOCK})))) == ["vars(dataset)['a b']"]


def test_deep_nesting_is_named_and_survived() -> None:
    deep: Any = LOCK
    for _ in range(10_000):
        deep = [deep]
    found = scan(Rows(tree=deep))
    assert found.complete
    assert [each.error for each in found.unsendable] == [
        "cannot pickle '_thread.lock' object",
        "maximum recursion depth exceeded",
    ]
    assert found.unsendable[0].path.startswith("dataset.tree[0][0][0]")
    assert "levels deep" in found.unsendable[0].path


def test_scanning_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    tensor, context = torch.zeros(10), multiprocessing.get_context("spawn")
    with open(tmp_path / "a", "wb+") as file:
        dataset = Rows(tensor=tensor, lock=context.Lock(), file=file, rng=random.Random(3), seen=[])
        before = (dict(vars(dataset)), tensor.data_ptr(), dataset.rng.getstate(), torch.get_rng_state())
        found = scan(dataset)
        after = (dict(vars(dataset)), tensor.data_ptr(), dataset.rng.getstate(), torch.get_rng_state())
    assert str(before) == str(after)
    assert not tensor.is_shared()
    assert set(refused(found)) == {"dataset.file"}


atoms = st.none() | st.integers() | st.text(max_size=5) | st.binary(max_size=5) | st.booleans()
bad = st.builds(threading.Lock) | st.builds(lambda: (i for i in ""))
keys = st.text(max_size=3) | st.integers(-5, 5) | st.tuples(st.integers(0, 3), st.text(max_size=2))
structures: Any = st.recursive(
    atoms | bad,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, min_size=1, max_size=2).map(lambda items: items * 50)
        | st.dictionaries(keys, inner, max_size=4)
        | st.tuples(inner, inner)
        | st.builds(Rows, a=inner, b_2=inner)
        | st.builds(Slotted, inner)
        | st.builds(Record, inner)
        | st.builds(functools.partial, st.just(print), inner, key=inner)
        | st.builds(lambda x: lambda: x, inner)
        | st.builds(collections.deque, st.lists(inner, max_size=3))
        | st.builds(lambda x: collections.OrderedDict(k=x), inner)
        | st.builds(lambda x: collections.defaultdict(list, {1: x}), inner)
        | st.builds(Dropping, inner)
        | st.builds(Reduced, inner)
    ),
    max_leaves=12,
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from("abcd"), structures, max_size=4))
@example({"a": (lambda x: lambda: collections.OrderedDict(k=x))(threading.Lock())})
@example({"a": (lambda x: lambda: x)(collections.OrderedDict(k=(lambda x: lambda: x)(threading.Lock())))})
def test_every_path_leads_to_what_it_names(inside: dict[str, Any]) -> None:
    dataset = Rows(**inside)
    found = scan(dataset)
    each: Any
    for each in (*found.unsendable, *found.held):
        at = follow(each.path, dataset)
        assert type(at).__name__ == each.kind, each
    for code in found.local_code:
        assert follow(code.path, dataset).__qualname__ == code.name
    assert bool(found.unsendable or found.local_code) == (not pickles(dataset))
    assert any(each.anyone for each in found.unsendable) == (not ships(dataset))


def follow(path: str, dataset: Any) -> Any:
    """What a path in words leads to."""
    if path.startswith("the variable "):
        name, _, rest = path.removeprefix("the variable '").partition("' ")
        function = follow(rest.removeprefix("that ").removesuffix(" closes over"), dataset)
        return function.__closure__[function.__code__.co_freevars.index(name)].cell_contents
    expression, _, origin = path.partition(", where ")
    if origin:
        name, _, rest = origin.partition(" is the ")
        value = follow(f"the {rest.replace('variable ', f'variable {name} ', 1)}", dataset)
        return eval(expression, {}, {name.strip("'"): value})
    return eval(path, {}, {"dataset": dataset})
