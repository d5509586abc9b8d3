"""The loader's accounts: every bad sample counted, each index logged once, killers remembered."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
import pytest
import torch

from stoker._runtime.pool import loader_stats as module
from stoker._runtime.pool.loader_stats import LoaderStats
from stoker._runtime.worker.bad_samples import BadSample

TORN = BadSample(3, 0, "error", "ValueError: torn")
NONE = BadSample(4, 1, "none", "is None")
KILLER = BadSample(5, 2, "killed", "killed every worker that fetched it")


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "stoker"]


def test_empty_stats() -> None:
    assert LoaderStats("train").as_dict() == {
        "name": "train", "batches": 0, "empty_batches": 0, "worker_deaths": 0, "stalls": 0,
        "bad_samples": {"count": 0, "indices": {}},
    }  # fmt: skip


def test_bad_samples_are_counted_by_index(caplog: pytest.LogCaptureFixture) -> None:
    stats = LoaderStats("train")
    stats.note_bad([TORN, NONE], "skip")
    stats.note_bad([TORN._replace(reason="ValueError: worse")], "skip")
    bad = stats.as_dict()["bad_samples"]
    assert bad == {
        "count": 3,
        "indices": {
            3: {"times": 2, "kind": "error", "reason": "ValueError: worse"},
            4: {"times": 1, "kind": "none", "reason": "is None"},
        },
    }
    assert logged(caplog) == [
        "train: dataset index 3 is bad (ValueError: torn): skipped",
        "train: dataset index 4 is bad (is None): skipped",
    ]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_the_log_says_what_became_of_it(caplog: pytest.LogCaptureFixture) -> None:
    LoaderStats("train").note_bad([NONE], "replace")
    assert logged(caplog) == ["train: dataset index 4 is bad (is None): another sample takes its place"]


def test_stats_are_a_copy() -> None:
    stats = LoaderStats("train")
    stats.note_bad([TORN], "skip")
    stats.as_dict()["bad_samples"]["indices"][3]["times"] = 99
    assert stats.as_dict()["bad_samples"]["indices"][3]["times"] == 1


def test_killers_are_remembered() -> None:
    stats = LoaderStats("train")
    stats.note_bad([TORN, NONE, KILLER], "skip")
    assert stats.killers == {5}


def test_a_killer_that_was_bad_in_another_way_before_is_remembered_too() -> None:
    stats = LoaderStats("train")
    stats.note_bad([KILLER._replace(kind="error", reason="ValueError")], "skip")
    stats.note_bad([KILLER], "skip")
    assert stats.killers == {5}
    assert stats.bad[5].kind == "killed"


@pytest.mark.parametrize("index", [np.int64(3), torch.tensor(3)], ids=["numpy", "torch"])
def test_indices_of_samplers_that_speak_numpy_or_torch(index: Any, caplog: pytest.LogCaptureFixture) -> None:
    stats = LoaderStats("train")
    for _ in range(2):
        stats.note_bad([TORN, KILLER._replace(index=index)], "skip")
    assert list(stats.bad) == [3]
    assert stats.killers == {3}
    assert len(logged(caplog)) == 1
    assert json.loads(json.dumps(stats.as_dict()))["bad_samples"]["indices"]["3"]["times"] == 4


def test_an_index_that_cannot_be_a_key_goes_by_its_text() -> None:
    stats = LoaderStats("train")
    stats.note_bad([KILLER._replace(index=[1, 2])], "skip")
    assert list(stats.bad) == ["[1, 2]"]
    assert stats.killers == {"[1, 2]"}


def test_a_dataset_that_is_bad_as_a_whole_does_not_fill_memory(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KEPT", 3)
    stats = LoaderStats("train")
    stats.note_bad([TORN._replace(index=index) for index in range(7)], "skip")
    stats.note_bad([KILLER], "skip")
    bad = stats.as_dict()["bad_samples"]
    assert bad["count"] == 8
    assert list(bad["indices"]) == [0, 1, 2]
    assert stats.killers == {5}, "those are never forgotten: each costs workers"
    assert logged(caplog)[-1] == "train: 3 samples are bad; further ones are only counted"
    assert len(logged(caplog)) == 4


def test_a_warning_with_a_key_comes_once(caplog: pytest.LogCaptureFixture) -> None:
    stats = LoaderStats("train")
    for key in ("a", "b", "a"):
        stats.warn_once(key, f"about {key}")
    assert logged(caplog) == ["train: about a", "train: about b"]
