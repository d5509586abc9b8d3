"""Shows where the wait went, stage by cause, in whole percent that add up to 100. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stoker._record.causes.causes import CauseShare

RECORDING = "recording"
"""What making the record took: a stage of its own, and no cause of the loader's."""
_MOST_STAGES = 3
_MOST_CAUSES = 5
"""Where there is room for them."""


def rows(parts: Sequence[CauseShare], most_causes: int = _MOST_CAUSES) -> list[list[str]]:
    """Lines of cells: a head, one line per stage, and their sum. Small stages and causes are one, "other". Empty without parts."""
    if not any(each.ns for each in parts):
        return []
    parts = [replace(each, cause=cause_of(each)) for each in parts]
    stages = _largest(
        {each.stage: 0 for each in parts}, [(each.stage, each.ns) for each in parts], _MOST_STAGES
    )
    causes = _largest(
        {each.cause: 0 for each in parts}, [(each.cause, each.ns) for each in parts], most_causes
    )
    cells: dict[tuple[str, str], int] = {}
    for each in parts:
        key = (
            each.stage if each.stage in stages else "other",
            each.cause if each.cause in causes else "other",
        )
        cells[key] = cells.get(key, 0) + each.ns
    percent = _apportioned(cells)
    names = [each for each in (*stages, "other") if any(percent[key] for key in percent if key[0] == each)]
    heads = [each for each in (*causes, "other") if any(percent[key] for key in percent if key[1] == each)]
    names, heads = list(dict.fromkeys(names)), list(dict.fromkeys(heads))
    lines = [["where the wait went", *(plain(each) for each in heads), "all"]]
    for name in names:
        line = [percent.get((name, head), 0) for head in heads]
        lines.append([plain(name), *(_percent(each) for each in line), _percent(sum(line))])
    if len(names) > 1:
        sums = [sum(percent.get((name, head), 0) for name in names) for head in heads]
        lines.append(["all", *(_percent(each) for each in sums), _percent(sum(sums))])
    return lines


def cause_of(part: CauseShare) -> str:
    """What a part of the wait is put down to, as people are told."""
    return RECORDING if part.stage == "record" else part.cause


def _apportioned(cells: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Whole percent of every cell: first of the causes, which are read most, then of the stages within each."""
    sums: dict[str, int] = {}
    for (_, cause), ns in cells.items():
        sums[cause] = sums.get(cause, 0) + ns
    found: dict[tuple[str, str], int] = {}
    for cause, whole in zip(sums, percents(list(sums.values())), strict=True):
        column = [key for key in cells if key[1] == cause]
        found.update(zip(column, percents([cells[key] for key in column], whole), strict=True))
    return found


def percents(values: Sequence[int], whole: int = 100) -> list[int]:
    """Whole percent that add up to ``whole``: the largest remainders are rounded up."""
    total = sum(values)
    if total <= 0:
        return [0] * len(values)
    found = [whole * each // total for each in values]
    order = sorted(range(len(values)), key=lambda place: -(whole * values[place] % total))
    for place in order[: whole - sum(found)]:
        found[place] += 1
    return found


def _largest(weights: dict[str, int], parts: list[tuple[str, int]], most: int) -> list[str]:
    for name, ns in parts:
        weights[name] += ns
    names = sorted(weights, key=lambda name: -weights[name])
    return names if len(names) <= most + 1 else names[:most]


def _percent(value: int) -> str:
    return f"{value} %" if value else "·"


def plain(name: str) -> str:
    """A cause or stage as it is written: "head-of-line"."""
    return name.replace("_", "-")
