"""The demand as the caller gave it."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pytest

from stoker._record import journal
from stoker._tools.tune import demand as demands
from stoker.errors import RecordError
from tests.unit import records

FINE: dict[str, Any] = {
    "step": None, "step_s": None, "record": None, "accumulate": 1, "ranks": None, "budget_s": 45.0, "batch_size": None,
}  # fmt: skip


def test_arguments_that_make_sense_pass():
    demands.check(**FINE)
    demands.check(**FINE | {"step_s": 0.0, "accumulate": 4, "ranks": 8, "batch_size": 1})
    demands.check(**FINE | {"step": "train:step"})
    demands.check(**FINE | {"step": len})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"step": "a:b", "step_s": 1.0}, "^give the demand once: step and step_s were both given$"),
        ({"step_s": 1.0, "record": "run.jsonl"}, "step_s and record"),
        ({"step_s": -1.0}, "step_s should be"),
        ({"step": "train.step"}, "module:function"),
        ({"accumulate": 0}, "accumulate should be"),
        ({"ranks": True}, "ranks should be"),
        ({"batch_size": 2.5}, "batch_size should be"),
        ({"budget_s": 0.0}, "budget_s should be"),
        ({"budget_s": float("nan")}, "budget_s should be"),
    ],
)
def test_arguments_that_do_not_are_told(given, said):
    with pytest.raises(ValueError, match=said):
        demands.check(**FINE | given)


def test_functions_that_another_process_can_find_have_a_name():
    assert demands.named(os.path.join) == "posixpath:join"
    for step in (lambda batch: None, functools.partial(print)):
        with pytest.raises(ValueError, match="module:function"):
            demands.named(step)


def test_a_record_tells_what_steps_took(tmp_path: Path):
    path = tmp_path / "run.json"
    short = records.loader(step_s=0.1, name="valid", totals={"steps": 10})
    journal.write(records.run(short, records.loader(step_s=2.0, load={"loop_cpu_ns": 1_000_000_000})), path)
    found = demands.recorded(str(path), accumulate=4)
    assert found.source == "record"
    assert (found.step_ns, found.cpu_ns, found.burst) == (80_000_000, 40_000_000, 4)


def test_the_loop_of_a_run_without_workers_made_the_batches_too(tmp_path: Path):
    path = tmp_path / "run.json"
    journal.write(records.run(records.loader(step_s=2.0, num_workers=0)), path)
    assert demands.recorded(str(path)).cpu_ns == 0


def test_a_record_without_steps_is_refused(tmp_path: Path):
    path = tmp_path / "run.json"
    journal.write(records.run(records.loader(step_s=0.0, totals={"steps": 0})), path)
    with pytest.raises(ValueError, match="holds no steps"):
        demands.recorded(str(path))
    with pytest.raises(RecordError):
        demands.recorded(str(tmp_path / "none.json"))
