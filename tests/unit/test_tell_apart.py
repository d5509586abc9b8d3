"""Loaders that one helper function made have names that differ."""

from __future__ import annotations

from pathlib import Path

from stoker._tools.profile.collected_records import _tell_apart, gather
from stoker._tools.profile.supervisor import ScriptExit
from tests.unit.records import loader


def test_a_helper_functions_loaders_are_told_apart_by_their_order():
    train = loader(options={"sampler": "RandomSampler"})
    valid = loader(options={"sampler": "SequentialSampler"})
    other = loader(site="train.py:80")
    _tell_apart([train, valid, other])
    assert [train.name, valid.name, other.name] == [
        "loader of Images, shuffled",
        "loader of Images, in order",
        "loader",
    ]


def test_those_with_one_order_are_numbered():
    first, second = (loader(options={"sampler": "RandomSampler"}) for _ in range(2))
    _tell_apart([first, second])
    assert [first.name, second.name] == ["loader of Images, number 1", "loader of Images, number 2"]


def test_a_damaged_note_does_not_hide_the_run(tmp_path: Path) -> None:
    """A process may die in the middle of a character."""
    (tmp_path / "7.left.txt").write_bytes("loader stayed torch's: naïve".encode()[:-3])
    found = gather(tmp_path, ScriptExit(7, 0, 1, 1), ["train.py"])
    assert found.left == ["loader stayed torch's: na\ufffd"]
