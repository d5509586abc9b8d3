"""Pieces of Vega-Lite that all charts share. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stoker._tools.report.page.terms import PARTS, scale

Spec = dict[str, Any]


def measured(field: str, title: str | None, **more: Any) -> Spec:
    """A channel for numbers."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def named(field: str, title: str | None = None, **more: Any) -> Spec:
    """A channel for names."""
    return {"field": field, "type": "nominal", "title": title, **more}


def coloured(field: str, values: Iterable[Mapping[str, Any]], colours: Mapping[str, str] = PARTS) -> Spec:
    """The colour of what ``field`` names, the same in every chart."""
    return named(field, scale=scale([str(each[field]) for each in values], colours))


def painted(field: str, colours: Mapping[str, str], **more: Any) -> Spec:
    """The colour of what ``field`` names: the theme's colour for each name, in this order."""
    return named(field, scale=scale(colours, colours), **more)


def tips(*fields: tuple[str, str] | tuple[str, str, str]) -> list[Spec]:
    """What is shown at the pointer: field, title, and for numbers their format."""
    return [
        measured(field[0], field[1], format=field[2]) if len(field) > 2 else named(field[0], field[1])
        for field in fields
    ]
