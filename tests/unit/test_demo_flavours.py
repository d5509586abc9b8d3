"""The demo's dataset: rows that are what they are called, and a message where one cannot be made."""

from __future__ import annotations

import pickle
import sys
import time

import pytest

from stoker._tools.demo import flavours


@pytest.mark.parametrize("name", flavours.MAKERS)
def test_rows_of_every_flavour(name: str) -> None:
    dataset = flavours.MAKERS[name][1](1e-4)
    assert len(dataset) == flavours.ENDLESS
    assert dataset.row_s > 0
    made = dataset[3]
    travelled = pickle.loads(pickle.dumps(dataset))
    assert made.equal(travelled[3])
    assert made.shape == ((3, 96, 96) if name == "jpeg" else (16,))


def test_one_row_in_61_straggles(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    dataset = flavours.Straggling(0.5)
    for index in range(122):
        dataset[index]
    assert [index for index, each in enumerate(slept) if each == 50.0] == [60, 121]
    assert slept.count(0.5) == 120


def test_without_pillow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(flavours.FlavourMissing, match="pip install pillow"):
        flavours.Decoding(1e-3)
