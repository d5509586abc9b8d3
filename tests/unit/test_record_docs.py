"""docs/record.md names every field of a record, every stage and cause, and shows a screen as it is."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from stoker._record import schema
from stoker._record.causes.thresholds import STARVED
from stoker._record.schema import CAUSES, MEMORY_COLUMNS, STAGES, STEP_COLUMNS

PAGE = (Path(__file__).parents[2] / "docs" / "record.md").read_text()
NAMED = set(re.findall(r"`([a-z_]+)`", PAGE))
KINDS = [
    schema.Run, schema.Machine, schema.Load, schema.Totals, schema.Blame, schema.WorkerRecord, schema.SlowestSample, schema.Event,
    schema.Period, schema.Concurrency, schema.Option, schema.ReceiptSummary, schema.CacheUse, schema.LoaderRecord, schema.RunRecord,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_is_named(kind):
    assert {each.name for each in fields(kind)} - NAMED == set()


def test_every_dataclass_of_the_record_is_looked_at():
    known = {
        each
        for each in vars(schema).values()
        if isinstance(each, type) and hasattr(each, "__dataclass_fields__")
    }
    assert known == set(KINDS)


def test_every_column_stage_and_cause_is_named():
    assert {*STEP_COLUMNS, *MEMORY_COLUMNS, *STAGES, *CAUSES, *STARVED} - NAMED == set()
