"""``split_batches``: whether several workers may make the rows of one batch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.knobs.knob import Knob

if TYPE_CHECKING:
    from stoker._tools.tune.model.candidates import KnobContext

_LONG_NS = 30_000_000
"""Batches that take longer than this are split when a worker is idle."""


class SplitBatches(Knob):
    """Left to the loader, which splits long batches. Whole batches are tried against that."""

    name = "split_batches"
    field = "split"
    minor = True

    def is_left_open(self, written: str) -> bool:
        return written in ("None", "False")

    def around(self, best: Setting, tried: Collection[Setting], context: KnobContext) -> list[Setting]:
        splits = best.split is None and best.kind.processes and best.threads == 1 and best.workers > 1
        if not splits or context.work.rows <= 1 or context.work.typical_ns <= _LONG_NS:
            return []
        return [replace(best, split=False, engine="stoker", prefetch=best.prefetch or 2)]

    def words(self, setting: Setting) -> str:
        return "" if setting.split is None else "split" if setting.split else "not split"
