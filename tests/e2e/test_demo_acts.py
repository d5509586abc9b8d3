"""The demo's acts about memory, a kill, the doctor and the tuner, each once in earnest, small."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from stoker._tools.demo import child
from stoker._tools.demo.act import ActContext
from stoker._tools.demo.acts import cache, doctor, killed, memory, tuner


def _stage(folder: Path) -> ActContext:
    return ActContext(quick=True, cpus=2, folder=str(folder), tell=lambda what, share: None, budget_s=2.0)


def test_workers_copy_a_list_and_not_a_shared_one() -> None:
    told: list[float] = []
    result = memory.measured(90_000, 2, lambda what, share: told.append(share))
    assert told == sorted(told)
    assert told[-1] == 1.0
    kinds = result["kinds"]
    assert {each["samples"] for each in kinds.values()} == {90_000}
    grown = {kind: memory.grown_bytes(each) for kind, each in kinds.items()}
    objects_bytes = kinds["torch"]["objects_bytes"]
    # In random order both workers come to read nearly every page; a shared list is not theirs to copy.
    assert grown["torch"] > objects_bytes
    assert grown["stoker"] > objects_bytes
    assert grown["stoker with share"] < grown["stoker"] / 2
    assert json.loads(json.dumps(result)) == result


def test_a_killed_worker_costs_torch_the_epoch_and_stoker_nothing() -> None:
    result = killed.measured(9, 0.002, lambda what, share: None)
    assert result["stoker"]["failure"] is None
    assert result["stoker"]["once"]
    assert result["stoker"]["digest"] == result["wanted"]["digest"]
    assert "DataLoader worker" in result["torch"]["failure"]
    assert len(result["torch"]["arrivals_s"]) < 9
    assert killed.sections(json.loads(json.dumps(result)))


def test_the_doctor_finds_what_is_wrong_and_leaves_nothing(tmp_path: Path) -> None:
    result = doctor.examined(_stage(tmp_path), ["STK102", "STK402"], 60.0)
    assert [each["code"] for each in result["diagnosis"]["findings"]] == ["STK402", "STK102"]
    assert str(tmp_path) not in json.dumps(result)
    assert not list(tmp_path.iterdir())
    assert "class Pictures" in result["source"]


def test_the_tuner_answers_and_leaves_no_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_PROFILES", str(tmp_path / "profiles"))
    result = tuner.tuned(_stage(tmp_path), 256, 1.5)
    assert result["tuning"]["format"] == "stoker-tuning"
    assert result["tuning"]["profile"] == ""
    assert not (tmp_path / "profiles").exists()
    assert tuner.lines(json.loads(json.dumps(result)))


def test_later_epochs_of_a_cache_make_no_sample() -> None:
    told: list[float] = []
    result = cache.measured(64, lambda what, share: told.append(share))
    assert told == sorted(told)
    ways = result["ways"]
    assert ways["torch"]["cache"] is None
    assert ways["stoker"]["cache"] is None
    for name in (cache.WHOLE, cache.FLIPPED):
        use = ways[name]["cache"]
        assert (use["misses"], use["hits"], use["passed"]) == (64, 2 * 64, 0)
    again = json.loads(json.dumps(result))
    assert len(cache.lines(again)) == 3
    (section,) = cache.sections(again)
    assert "once for all workers" not in str(section)
    assert "whole samples cached" in str(section)


def _raise(tell: Any) -> None:
    raise ValueError("too bad")


def _end(tell: Any) -> None:
    os._exit(3)


def _linger(tell: Any) -> None:
    time.sleep(600)


def test_a_child_that_fails_is_told_of_and_ended() -> None:
    with pytest.raises(child.ChildError, match="ValueError: too bad"):
        child.perform(_raise, limit_s=60)
    with pytest.raises(child.ChildError, match="code 3"):
        child.perform(_end, limit_s=60)
    with pytest.raises(child.ChildError, match="not done within"):
        child.perform(_linger, limit_s=0.2)
