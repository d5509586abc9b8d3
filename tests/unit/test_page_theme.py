"""The colours of a report: text can be read, series can be seen, in both themes; and charts can be drawn without the page."""

from __future__ import annotations

import re
from importlib import resources
from itertools import combinations
from pathlib import Path

import pytest

import stoker
from stoker._tools.render import theme

TEXT_ON_GROUND = (
    *((text, ground) for text in ("ink", "muted", "link") for ground in ("ground", "card")),
    *((text, "code") for text in ("ink", "muted", "link")),
    *((each, f"{each}-ground") for each in ("none", "low", "moderate", "high")),
    *(("ink", f"{each}-ground") for each in ("none", "low", "moderate", "high")),
    *((each, "card") for each in ("none", "low", "moderate", "high")),
)
"""Every pair in which the style sheet sets text: 4.5 to 1 at least."""


def luminance(colour: str) -> float:
    """As WCAG 2 reckons it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_can_be_read(dark: bool) -> None:
    for text, ground in TEXT_ON_GROUND:
        found = contrast(theme.COLOURS[text][dark], theme.COLOURS[ground][dark])
        assert found >= 4.5, f"{text} on {ground}: {found:.2f}"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_series_and_focus_can_be_seen(dark: bool) -> None:
    for name in (*theme.SERIES, *theme.MEANINGS, "focus"):
        for ground in ("card", "ground") if name == "focus" else ("card",):
            found = contrast(theme.COLOURS[name][dark], theme.COLOURS[ground][dark])
            assert found >= 3.0, f"{name} on {ground}: {found:.2f}"


def seen_without_red(colour: str) -> tuple[float, float, float]:
    """What somebody with deuteranopia sees of it, about (Viénot 1999), as linear light."""
    r, g, b = (((int(colour[at : at + 2], 16) / 255) + 0.055) / 1.055 for at in (1, 3, 5))
    r, g, b = r**2.4, g**2.4, b**2.4
    return 0.293 * r + 0.707 * g, 0.293 * r + 0.707 * g, -0.022 * r + 0.022 * g + b


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_first_series_are_told_apart_without_red_and_green(dark: bool) -> None:
    for one, other in combinations(theme.SERIES[:4], 2):
        here, there = (seen_without_red(theme.COLOURS[each][dark]) for each in (one, other))
        assert max(abs(a - b) for a, b in zip(here, there, strict=True)) > 0.05, f"{one} and {other}"


def test_the_style_sheet_asks_only_for_colours_that_there_are() -> None:
    sheet = resources.files("stoker._tools.render").joinpath("style.css").read_text(encoding="utf-8")
    asked = set(re.findall(r"var\(--([a-z0-9-]+)\)", sheet)) - {"shadow", "mono"}
    assert asked <= set(theme.COLOURS)
    assert f"--ink:light-dark({theme.COLOURS['ink'][0]},{theme.COLOURS['ink'][1]})" in theme.variables()


def test_a_colour_by_name_is_a_variable_or_a_value() -> None:
    spec = {"mark": {"color": theme.colour("torch")}, "layer": [{"range": [theme.colour("stoker"), 3]}]}
    assert spec["mark"] == {"color": "var(--torch)"}
    assert theme.settled(spec, dark=True) == {
        "mark": {"color": theme.COLOURS["torch"][1]},
        "layer": [{"range": [theme.COLOURS["stoker"][1], 3]}],
    }
    assert "var(" not in str(theme.settled(theme.config(), dark=False))
    with pytest.raises(KeyError, match="no colour 'mauve'"):
        theme.colour("mauve")


@pytest.mark.parametrize("ground", ["#ffffff", "#111111"], ids=["light", "dark"])
@pytest.mark.parametrize("name", sorted(theme.ON_ANY_GROUND))
def test_severities_stand_out_on_any_ground(name: str, ground: str) -> None:
    assert contrast(theme.ON_ANY_GROUND[name], ground) >= 3


def test_every_colour_is_in_the_theme() -> None:
    package = Path(stoker.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"[\"']#[0-9a-fA-F]{6}[\"']", path.read_text(encoding="utf-8"))
    }
    assert found == {"_tools/render/theme.py"}
