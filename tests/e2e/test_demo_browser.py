"""The demo's page in a real browser, of figures that a demo has measured: those of the pictures of README and docs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from stoker._tools.demo import page
from stoker._tools.render import html
from tests import browser as browsers
from tests.e2e.test_report_browser import WIDTHS, check_both_themes, check_charts

FIGURES = Path(__file__).parents[2] / "docs/pictures/demo.json"
MOST_BYTES = 3_000_000


@pytest.fixture(scope="module")
def browser(lasting_children: set[int]) -> Iterator[Browser]:
    with browsers.launched(lasting_children) as found:
        yield found


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page. Not made in a test: what bundles the chart library keeps descriptors open."""
    found = tmp_path_factory.mktemp("demo") / "stoker-report.html"
    report = page.report(json.loads(FIGURES.read_text(encoding="utf-8")))
    found.write_text(html.render(report), encoding="utf-8")
    return found


def test_the_demos_page_is_whole(browser: Browser, path: Path) -> None:
    """At three widths, in both themes: a chart for every flavour and act, that answers to the pointer."""
    assert path.stat().st_size < MOST_BYTES
    for width in WIDTHS:
        with browsers.visit(browser, path, width=width) as shown:
            check_both_themes(shown)
            names = {each.get_attribute("id") for each in shown.locator(".chart").all()}
            assert {"scaling-sleep", "scaling-jpeg", "scaling-python", "scaling-stragglers"} <= names
            assert {"crowd-jpeg", "crowd-python", "demo-memory-chart"} <= names
            assert check_charts(shown) == len(names)
            bar = shown.locator("#crowd-jpeg [class*='role-mark'] path").first
            bar.scroll_into_view_if_needed()
            bar.hover()
            expect(shown.locator("#vg-tooltip-element.visible")).to_contain_text("CPU a row, ms")
