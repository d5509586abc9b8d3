"""A loader's state: written, read back, and refused with words when it is not one."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker._runtime.checkpoint.state_counts import vouched
from stoker._runtime.checkpoint.state_format import (
    LoaderFacts,
    SavedState,
    StreamState,
    differences,
    dump,
    parse,
)

FACTS = LoaderFacts("map", 20, ("torch.Batch", "torch.Random"), 20, None, False, 4, "batch")
MAP = SavedState(
    facts=FACTS, base_seed=5, pipe_seed=None, batches=2, samples=8, ahead=(3, 5), finished=False,
    generators={"given": ["eA=="], "torch": "eA==", "pulled": {"given": [], "python": "eA=="}}, sampler_epoch=None,
    sampler_state=None, sampler_at=0, dataset_state={"k": 1}, streams=None, turn=0,
)  # fmt: skip
STREAMS = replace(
    MAP,
    facts=replace(FACTS, kind="iterable", length=None, sampler=(), sampler_length=None),
    ahead=(),
    dataset_state=None,
    streams=(StreamState(1, 1, {"i": 3}, None), StreamState(1, 0, None, None, ended=True)),
    turn=1,
)
BOTH = pytest.mark.parametrize("saved", [MAP, STREAMS], ids=["map", "iterable"])


@BOTH
def test_what_is_dumped_is_read_back_also_through_json(saved: SavedState) -> None:
    assert parse(dump(saved)) == saved
    assert parse(json.loads(json.dumps(dump(saved)))) == saved


@BOTH
def test_nothing_of_a_dump_is_shared(saved: SavedState) -> None:
    state = dump(saved)
    state["generators"][0]["given"].clear()
    state["generators"][0]["pulled"].clear()
    state["ahead"].append(9)
    state["sampler"].append("x")
    if state["streams"] is not None:
        state["streams"][0]["pulled"] = 99
    assert dump(saved) == dump(parse(dump(saved))) != state


@BOTH
def test_a_state_without_one_of_its_entries_is_truncated(saved: SavedState) -> None:
    for name in dump(saved).keys() - {
        "receipt",
        "resized_at",
        "not_in_receipt",
    }:  # not in those of earlier versions
        state = dump(saved)
        del state[name]
        with pytest.raises(
            ValueError, match="no state of a stoker" if name == "stoker" else f"truncated: '{name}'"
        ):
            parse(state)
    for name in ("pulled", "at", "dataset", "iterator", "ended", "begun"):
        state = dump(STREAMS)
        del state["streams"][1][name]
        with pytest.raises(ValueError, match=f"truncated: '{name}' of one of its 'streams'"):
            parse(state)


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


NONSENSE: list[Any] = [
    -1, 1 << 48, 10**40, -(10**40), 1.5, math.nan, math.inf, "", "1", b"x", True, None, [], [-1], ["a"], [None], [[]], [{}], (), {},
    {"given": None}, {"given": [1]}, {"given": [], "torch": 3}, {"given": [], "pulled": 3}, {1: 2},
    np.array([1, 2]), np.array(3.0), np.bool_(True), torch.tensor([1, 2]), object(), Unspeakable(), int, Ellipsis,
]  # fmt: skip


@BOTH
def test_an_entry_is_of_its_kind_or_the_state_is_refused(saved: SavedState) -> None:
    """Either it is read, and reads the same again, or it is a ValueError with words of ours."""
    users = {"sampler_state", "dataset_state", "dataset", "iterator"}
    for value in NONSENSE:
        states = [(name, {**dump(saved), name: value}) for name in dump(saved)]
        if saved.streams is not None:
            first, second = dump(saved)["streams"]
            states += [
                (name, {**dump(saved), "streams": [first, {**second, name: value}]}) for name in second
            ]
        for name, state in states:
            if name in users:
                continue
            try:
                again = parse(state)
            except ValueError as error:
                words = str(error)
            else:
                words = "" if parse(dump(again)) == again else name
            assert not words or any(known in words for known in ("is damaged", "is truncated", "has format"))


@pytest.mark.parametrize("version", [2, 0, "1", True, None, 1.5, np.array([1, 1])])
def test_other_versions_are_named(version: Any) -> None:
    with pytest.raises(
        ValueError, match=r"has format .*, and this version of stoker reads format 1: load it with"
    ):
        parse({**dump(MAP), "stoker": version})


def test_numbers_of_numpy_are_numbers() -> None:
    state = dump(MAP)
    for name in ("stoker", "length", "base_seed", "batches", "samples", "batch_size"):
        state[name] = np.int64(state[name])
    state["ahead"] = [np.array(3), np.uint8(5)]
    saved = parse(state)
    assert saved == MAP
    assert {type(number) for number in (saved.batches, saved.base_seed, *saved.ahead)} == {int}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ahead": [1]}, "'ahead' names batches that"),
        ({"sampler_at": 3}, "'sampler_at' lies beyond"),
        ({"kind": "iterable"}, "'streams' belong to iterable datasets"),
        ({"streams": []}, "'streams' belong to iterable datasets"),
    ],
)
def test_what_cannot_be_true_together_is_told(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"this state is damaged: {words}"):
        parse({**dump(MAP), **changed})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"streams": None}, "'streams' belong to"),
        ({"streams": []}, "'streams' is empty"),
        ({"batches": 1}, "its 'streams' were pulled more often"),
        ({"dataset_state": ({},)}, "'dataset_state' belongs to"),
    ],
)
def test_what_cannot_be_true_of_streams_is_told(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"this state is damaged: {words}"):
        parse({**dump(STREAMS), **changed})
    state = dump(STREAMS)
    state["streams"][0]["at"] = 2
    with pytest.raises(ValueError, match="a state from beyond what was pulled"):
        parse(state)


@pytest.mark.parametrize(
    ("foreign", "words"),
    [
        (None, "but got NoneType"),
        ([], "but got list"),
        ("{}", "but got str"),
        ({"a": 1}, "it has no 'stoker' but 'a'"),
        ({"_snapshot": {}, "_steps_since_snapshot": 1}, "one of torchdata's StatefulDataLoader"),
        ({"_sampler_iter_state": None, "_num_yielded": 3}, "one of torchdata's StatefulDataLoader"),
        ({"epoch": 1, "global_step": 3, "state_dict": {}, "loops": {}}, "Is the loader's state a part of it"),
        ({"x" * 10**6: 1}, r"it has no 'stoker' but 'x{12}\.\.\.x{13}'$"),
    ],
)
def test_what_is_no_state_is_refused(foreign: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(foreign)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=50)
@given(data=st.data())
def test_any_damage_is_a_value_error(data: st.DataObject) -> None:
    state = dump(data.draw(st.sampled_from([MAP, STREAMS])))
    for name in data.draw(st.lists(st.sampled_from(sorted(state)), min_size=1, max_size=3, unique=True)):
        if data.draw(st.booleans()):
            del state[name]
        else:
            state[name] = data.draw(VALUES)
    try:
        saved = parse(state)
    except ValueError:
        return
    assert parse(dump(saved)) == saved


def test_the_same_facts_have_no_differences() -> None:
    assert differences(MAP, FACTS) == []


@pytest.mark.parametrize(
    ("here", "words"),
    [
        ({"kind": "iterable"}, "saved over a map-style dataset, and this loader has an iterable-style one"),
        ({"length": 21}, "its dataset had 20 samples, this one has 21 samples"),
        ({"length": None}, "this one has no length"),
        ({"sampler": ("a", "b")}, "its samplers were torch.Batch over torch.Random, here they are a over b"),
        ({"sampler_length": 9}, "its sampler had 20 samples, this one has 9 samples"),
        ({"replicas": 2}, "its sampler divided the data by None ranks, this one by 2"),
        ({"rng": "sample"}, "saved with rng='batch', this loader has rng='sample'"),
        ({"batch_size": 5}, "its batch_size was 4, here it is 5, and batches were handed over out of order"),
        ({"batch_size": None}, "its batch_size was 4, here it is None"),
    ],
)
def test_what_differs_is_said_with_a_way_out(here: dict[str, Any], words: str) -> None:
    found = differences(MAP, replace(FACTS, **here))
    assert len(found) == 1
    assert words in found[0]


def test_all_differences_are_told_at_once() -> None:
    assert len(differences(MAP, replace(FACTS, length=3, sampler=("a",), rng="torch", batch_size=9))) == 4


def test_what_may_differ() -> None:
    whole = replace(MAP, ahead=())
    assert differences(whole, replace(FACTS, batch_size=5)) == []
    assert differences(replace(MAP, finished=True), replace(FACTS, length=3, rng="torch")) == []
    assert differences(whole, replace(FACTS, elastic=True, replicas=8, rank=3)) == []


def test_batches_out_of_order_belong_to_their_rank() -> None:
    saved = replace(MAP, facts=replace(FACTS, replicas=2, rank=0))
    here = replace(FACTS, replicas=2, rank=1)
    assert "out of order on rank 0 of 2, and this is rank 1 of 2" in differences(saved, here)[0]
    assert differences(replace(saved, ahead=()), here) == []


@BOTH
def test_it_has_no_key_that_accelerate_takes_for_torchdatas(saved: SavedState) -> None:
    assert not {"_sampler_iter_yielded", "_num_yielded", "_index_sampler_state"} & set(dump(saved))


@pytest.mark.parametrize(("counted", "kept"), [("2 8", True), ("4 8", True), ("5 20", False), ("2 9", False)])
def test_a_receipt_that_counts_too_much_is_left_out(counted: str, kept: bool) -> None:
    """Without it the state is one that can be loaded."""
    saved = vouched(replace(MAP, ahead=() if "2 " in counted else (3, 5), receipt=f"1 0/1 0 {counted} 0 0 0"))
    assert (saved.receipt is not None) == kept
    assert parse(dump(saved)) == saved


def test_a_state_of_an_earlier_version_has_no_receipt() -> None:
    state = dump(STREAMS)
    del state["receipt"]
    assert parse(state).receipt is None
