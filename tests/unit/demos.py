"""Acts that stand in for the demo's own, and records of demos that nobody has run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from stoker._tools.demo import record
from stoker._tools.demo.act import ActContext
from stoker._tools.render.section import Chart, Prose, Section, Table


def act(
    title: str = "An act",
    *,
    seconds: tuple[float, float] = (1.0, 2.0),
    run: Callable[[ActContext], dict[str, Any]] = lambda stage: {"found": 1},
    lines: Callable[[dict[str, Any]], list[str]] = lambda result: [f"found {result['found']}"],
) -> Any:
    """One that does as it is told."""

    def sections(result: dict[str, Any]) -> list[Section]:
        table = Table("What was found", ("found",), ((str(result["found"]),),))
        chart = Chart("chart", "Found", "What was found.", {"data": {"values": []}, "mark": "bar"}, table)
        return [Section("found", title, (Prose("See below."), chart))]

    return SimpleNamespace(TITLE=title, SECONDS=seconds, run=run, lines=lines, sections=sections)


def performed(acts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The record of a demo in which these acts found 1 each; a text in place of one is why it failed."""
    found = record.fresh(quick=True) | {"seconds": 12.3}
    for name, each in acts.items():
        failed = isinstance(each, str)
        title = "Broken" if failed else each.TITLE
        found["acts"][name] = record.performed(
            title, 1.0, None if failed else {"found": 1}, each if failed else None
        )
    return found | more


def scaling(
    gains: dict[str, dict[str, list[float]]], *, cpus: int = 2, counts: tuple[int, ...] = (0, 2, 8)
) -> dict[str, Any]:
    """What the scaling act returns when flavours gain so much, by loader and count: a row takes 1 ms without workers."""
    flavours = []
    for name, by_loader in gains.items():
        points = [
            {
                "workers": count,
                **{
                    kind: {
                        "rates": [1000 * each[place]],
                        "first_ms": [20.0],
                        "cpu_ms": [2.0],
                        "switches": [30.0],
                    }
                    for kind, each in by_loader.items()
                },
            }
            for place, count in enumerate(counts)
        ]
        flavours.append(
            {"name": name, "title": f"the {name} kind", "row_ms": 1.0, "left_out": None, "points": points}
        )
    return {"cpus": cpus, "batch": 8, "counts": list(counts), "rounds": 1, "flavours": flavours}
