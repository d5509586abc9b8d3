"""The report in a real browser, from a file and offline: what people see, touch, hear and print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, FloatRect, Page, TimeoutError, expect

from stoker import DataLoader
from stoker._record.schema import RunRecord
from stoker._tools.render import html, theme
from stoker._tools.render.section import Chart, Code, Prose, Remark, Report, Section, SideBySide, Table
from stoker._tools.report.page import build
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.verdict.verdict import judge
from tests import browser as browsers
from tests.browser import visit
from tests.unit import records

WIDTHS = (360, 768, 1280)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def browser(lasting_children: set[int]) -> Iterator[Browser]:
    with browsers.launched(lasting_children) as found:
        yield found


def real_record() -> RunRecord:
    """Of a loader that ran, here and now."""
    data = torch.utils.data.TensorDataset(torch.arange(64))
    with DataLoader(data, batch_size=4, num_workers=2) as loader:
        for _ in loader:
            pass
        return RunRecord.from_dict(loader.stats()["record"])


def built_record(name: str, wait_s: float) -> RunRecord:
    waits = {("fetch", 0, "io"): wait_s, ("fetch", 1, "compute"): wait_s / 2, ("start", -1, "start_up"): 0.1}
    return records.run(records.loader(waits, dataset=name, steps=records.steps(60)), id=name)


def run(label: str, record: RunRecord) -> ReportedRun:
    return ReportedRun(label, record, judge(record))


def made_up() -> Report:
    """All parts there are, with values that a test can know, and texts that want to get out."""
    rows = [("torch", 2, 10.5), ("torch", 4, 20.25), ("stoker", 2, 30.5), ("stoker", 4, 60.75)]
    cells = Table(
        "Speed by workers",
        ("loader", "workers", "per second"),
        tuple((a, str(b), f"{c:.2f}") for a, b, c in rows),
        frozenset({1, 2}),
    )
    loaders = {"domain": ["torch", "stoker"], "range": [theme.colour("torch"), theme.colour("stoker")]}
    spec: dict[str, Any] = {
        "data": {"values": [{"loader": a, "workers": b, "speed": c, "note": HOSTILE} for a, b, c in rows]},
        "mark": {"type": "bar"},
        "encoding": {
            "y": {"field": "workers", "type": "ordinal", "title": "workers"},
            "yOffset": {"field": "loader"},
            "x": {"field": "speed", "type": "quantitative", "title": "samples per second"},
            "color": {"field": "loader", "type": "nominal", "scale": loaders, "title": None},
            "tooltip": [
                {"field": "loader"},
                {"field": "speed", "title": "per second", "format": ".2f"},
                {"field": "note"},
            ],
        },
    }
    line = {**spec, "mark": {"type": "line", "point": True}, "height": 180}
    line["encoding"] = {
        "x": {"field": "workers", "type": "quantitative"}, "y": {"field": "speed", "type": "quantitative"},
        "color": {"field": "loader", "type": "nominal", "scale": loaders},
    }  # fmt: skip
    faceted = {
        **line,
        "height": 80,
        "encoding": {**line["encoding"], "row": {"field": "loader", "title": None}},
    }
    stacked = {"data": spec["data"], "vconcat": [{**line, "height": 60}, {**spec, "height": 60}]}
    wide = Table(
        "Wide", tuple(f"column {each}" for each in range(30)), (tuple("123456789" for _ in range(30)),)
    )
    remark = Remark(
        "more-workers",
        "high",
        f"More {HOSTILE}",
        "It `waits`.",
        "Set `num_workers=4`.",
        "num_workers=4",
        "twice as fast",
    )
    charts = [
        Chart(name, f"The {name}", f"What the {name} shows.", drawn, cells)
        for name, drawn in (("bars", spec), ("line", line), ("rows", faceted), ("stack", stacked))
    ]
    sections = (
        Section("charts", "Charts", tuple(charts)),
        Section(
            "findings", "Findings", (remark, Prose(HOSTILE), Code("stoker tune " + "x" * 200, "sh"), wide)
        ),
        Section(
            "both",
            "Beside",
            (SideBySide((("one", (remark, replace(charts[0], id="again"))), (HOSTILE, (cells,)))),),
        ),
    )
    return Report(
        "A report",
        f"It waits: {HOSTILE}",
        "moderate",
        sections,
        {f"made {HOSTILE[:9]}": {"a": HOSTILE, "b": [1, 2.5, None]}},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``made``: all parts; ``real``: a run that was; ``two``: records beside each other, with their raw data as ``two.json``."""
    at = tmp_path_factory.mktemp("reports")
    two = build.report(
        Material((run("before.json", built_record(HOSTILE, 2.0)), run(HOSTILE, built_record("after", 0.2))))
    )
    for name, report in (
        ("made", made_up()),
        ("real", build.report(Material((run("run.json", real_record()),)))),
        ("two", two),
    ):
        (at / f"{name}.html").write_text(html.render(report), encoding="utf-8")
        (at / f"{name}.json").write_text(json.dumps(list(report.raw.values())), encoding="utf-8")
    return at


@pytest.fixture(scope="module")
def made(browser: Browser, folder: Path) -> Iterator[Page]:
    """All parts, on a desk. For tests that leave a page as they found it."""
    with visit(browser, folder / "made.html", permissions=["clipboard-read", "clipboard-write"]) as page:
        yield page


@pytest.fixture(scope="module")
def two(browser: Browser, folder: Path) -> Iterator[Page]:
    """Two records, on a desk. For tests that leave a page as they found it."""
    with visit(browser, folder / "two.html") as page:
        yield page


def colour(page: Page, pattern: str, name: str) -> str:
    return str(page.locator(pattern).first.evaluate("(at, name) => getComputedStyle(at)[name]", name))


def rgb(name: str, look: str) -> str:
    value = theme.COLOURS[name][look == "dark"]
    return f"rgb({int(value[1:3], 16)}, {int(value[3:5], 16)}, {int(value[5:7], 16)})"


CHARTS = """() => [...document.querySelectorAll(".chart")].map(chart => {
    const drawn = chart.querySelectorAll("svg");
    const box = drawn[0]?.getBoundingClientRect();
    const marks = chart.querySelectorAll("[class*='role-mark'] path, [class*='role-mark'] line, [class*='role-mark'] text").length;
    return {id: chart.id, drawn: drawn.length, marks, width: box?.width, height: box?.height, room: chart.clientWidth};
})"""


def check_charts(page: Page) -> int:
    """Each is drawn, has marks, and keeps within its card. How many there are."""
    charts = page.evaluate(CHARTS)
    for chart in charts:
        assert chart["drawn"] == 1, chart
        assert chart["marks"] > 0, chart
        assert chart["height"] > 30, chart
        assert 100 < chart["width"] <= chart["room"] + 1, chart
    return len(charts)


def check_layout(page: Page) -> None:
    """Nothing makes the page scroll sideways."""
    over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert over <= 0, f"the page is {over} px too wide"


def check_both_themes(page: Page) -> None:
    for look in THEMES:
        page.emulate_media(color_scheme=look)
        assert check_charts(page) >= 1
        check_layout(page)
        assert colour(page, "html", "backgroundColor") == rgb("ground", look)
        assert colour(page, ".chart text", "fill") in (rgb("muted", look), rgb("ink", look))
        if page.locator("#bars").count():
            assert colour(page, "#bars [class*='role-mark'] path", "fill") == rgb("torch", look)
    page.emulate_media(color_scheme="light")
    assert page.get_by_role("region", name="In short").is_visible()


@pytest.mark.parametrize("width", WIDTHS[:-1])
@pytest.mark.parametrize("name", ["made", "two"])
def test_a_page_is_whole_in_the_hand_in_both_themes(
    browser: Browser, folder: Path, name: str, width: int
) -> None:
    with visit(browser, folder / f"{name}.html", width=width) as page:
        check_both_themes(page)
        assert page.locator("nav details").get_attribute("open") is None


def test_a_page_is_whole_on_a_desk_in_both_themes(made: Page, two: Page) -> None:
    for page in (made, two):
        check_both_themes(page)
        assert page.locator("nav details").get_attribute("open") == ""
    assert made.locator(".chart").count() == 5


def test_legends_are_whole_in_the_hand(browser: Browser, tmp_path: Path) -> None:
    """They begin right of the names, so that there is less room for them than for the chart."""
    causes = ("io", "compute", "starved", "start_up")
    waits = {("fetch", place, cause): 0.2 for place in (0, 1) for cause in causes} | {
        ("open", -1, "parent"): 0.3
    }
    record = records.run(records.loader(waits, steps=records.steps(60)))
    path = tmp_path / "legends.html"
    path.write_text(html.render(build.report(Material((run("legends", record),)))))
    cut = """() => [...document.querySelectorAll('.chart svg')].flatMap((svg) => [...svg.querySelectorAll('.role-legend text')]
        .filter((text) => text.getBoundingClientRect().right > svg.getBoundingClientRect().right + 1)
        .map((text) => `${svg.closest('.chart').id}: ${text.textContent}`))"""
    with visit(browser, path, width=WIDTHS[0]) as page:
        assert page.evaluate(cut) == []


def test_hovering_a_mark_tells_its_values(made: Page) -> None:
    bars = made.locator("#bars [class*='role-mark'] path")
    told = []
    for at in range(bars.count()):
        bars.nth(at).hover()
        tip = made.locator("#vg-tooltip-element.visible")
        expect(tip).to_be_visible()
        assert HOSTILE in tip.inner_text(), "what a record says is text, here too"
        told.append(tuple(tip.locator("td.value").all_inner_texts()[:2]))
    assert sorted(told) == [("stoker", "30.50"), ("stoker", "60.75"), ("torch", "10.50"), ("torch", "20.25")]


LARGEST = """chart => [...chart.querySelectorAll("[class*='role-mark'] path, [class*='role-mark'] line")]
    .map(mark => mark.getBoundingClientRect()).filter(box => box.width + box.height > 3)
    .sort((one, other) => other.width * other.height - one.width * one.height)
    .slice(0, 6).map(box => [box.x + box.width / 2, box.y + box.height / 2])"""


def test_every_chart_of_a_report_answers_to_the_pointer(two: Page) -> None:
    for chart in two.locator(".chart").all():
        chart.scroll_into_view_if_needed()
        for x, y in chart.evaluate(LARGEST):
            two.mouse.move(x, y)
            with suppress(TimeoutError):
                two.wait_for_selector("#vg-tooltip-element.visible td.value", timeout=1500)
                break
        else:
            pytest.fail(f"{chart.get_attribute('id')} tells nothing when one points at it")
        two.mouse.move(0, 0)


def places(page: Page) -> tuple[FloatRect, FloatRect]:
    """Of two columns."""
    one, other = (each.bounding_box() for each in page.locator(".beside > .column").all()[:2])
    assert one is not None
    assert other is not None
    return one, other


def test_two_records_stand_beside_each_other_and_below_on_a_phone(made: Page, two: Page) -> None:
    for label in ("before.json", HOSTILE):
        assert two.get_by_role("main").get_by_text(label).count() > 0
    one, other = places(made)
    assert one["y"] == other["y"]
    assert other["x"] >= one["x"] + one["width"]
    made.set_viewport_size({"width": 360, "height": 800})
    made.wait_for_selector("#bars svg[width^='2'], #bars svg[width^='3']")  # charts are drawn anew, narrower
    one, other = places(made)
    assert other["y"] >= one["y"] + one["height"]
    check_layout(made)
    made.set_viewport_size({"width": 1280, "height": 800})
    made.wait_for_selector("#bars svg[width^='8'], #bars svg[width^='9']")


def test_the_theme_is_switched_and_remembered(browser: Browser, folder: Path) -> None:
    with visit(browser, folder / "made.html", theme="light") as page:
        toggle = page.get_by_role("button", name="Dark theme")
        assert toggle.get_attribute("aria-pressed") == "false"
        toggle.click()
        for _ in ("switched", "remembered"):
            assert toggle.get_attribute("aria-pressed") == "true"
            assert colour(page, "html", "backgroundColor") == rgb("ground", "dark")
            assert colour(page, "#bars [class*='role-mark'] path", "fill") == rgb("torch", "dark")
            page.reload()
            page.wait_for_selector(browsers.DRAWN, state="attached")
        toggle.press("Enter")
        assert colour(page, "html", "backgroundColor") == rgb("ground", "light")


FOCUSED = """() => {
    const at = document.activeElement;
    return at === document.body ? null : [at.localName, at.innerText.trim(), getComputedStyle(at).outlineStyle];
}"""


def test_everything_is_reached_by_keyboard(browser: Browser, folder: Path) -> None:
    with visit(browser, folder / "made.html", width=360) as page:
        reached = []
        for _ in range(80):
            page.keyboard.press("Tab")
            found = page.evaluate(FOCUSED)
            if found is None:
                break
            kind, name, outline = found
            assert outline != "none", f"the focus on {name!r} can be seen"
            reached.append((kind, name))
        names = [name for _, name in reached]
        assert names[:2] == ["Skip to the report", "Dark theme"]
        assert ("summary", "Contents") in reached
        assert names.count("The numbers, as a table") == 5
        assert names.count("Copy") == 3
        assert "Save the raw JSON" in names
        assert [kind for kind, _ in reached].count("div") >= 1, "a table that scrolls"
        page.locator("nav summary").press("Enter")
        page.get_by_role("link", name="Findings", exact=True).press("Enter")
        expect(page.locator("#findings")).to_be_in_viewport()
        page.locator("figure summary").first.press("Space")
        expect(page.get_by_role("table", name="Speed by workers").first).to_be_visible()


def test_a_screen_reader_reads_it_in_order(made: Page) -> None:
    for role in ("banner", "navigation", "main", "contentinfo"):
        expect(made.get_by_role(role)).to_have_count(1)
    assert made.locator("html").get_attribute("lang") == "en"
    expect(made.get_by_role("heading", level=1)).to_have_text("A report")
    expect(made.get_by_role("heading", level=2)).to_contain_text(["Charts", "Findings", "Beside", "Raw data"])
    chart = made.get_by_role("img", name="The bars").first
    expect(chart).to_have_accessible_description("What the bars shows.")
    expect(made.get_by_role("figure")).to_have_count(5)
    assert "Serious" in made.get_by_role("article").first.inner_text(), "not by colour alone"
    unnamed = made.evaluate(
        "[...document.querySelectorAll('a, button, summary')].filter(at => !(at.ariaLabel || at.textContent).trim()).length"
    )
    assert unnamed == 0


@pytest.mark.parametrize(("width", "shade"), [(360, "dark"), (1280, "light")])
def test_an_examiner_of_accessibility_finds_nothing(
    browser: Browser, folder: Path, width: int, shade: Literal["light", "dark"]
) -> None:
    """By axe-core. Contrast, which it cannot see through layers, is in tests/unit/test_page_theme.py."""
    for name in ("made", "two"):
        with visit(browser, folder / f"{name}.html", width=width, theme=shade, bypass_csp=True) as page:
            found = Axe().run(page).response
        assert len(found["passes"]) > 20  # it has looked at something
        assert not found["violations"], [(each["id"], each["help"]) for each in found["violations"]]


def test_what_is_to_be_typed_can_be_copied(made: Page) -> None:
    made.get_by_role("article").first.get_by_role("button", name="Copy").click()
    expect(made.get_by_role("status")).to_have_text("Copied.")
    assert made.evaluate("navigator.clipboard.readText()") == "num_workers=4"


def check_raw(page: Page, wanted: list[Any]) -> None:
    buttons = page.get_by_role("button", name="Save the raw JSON")
    expect(buttons).to_have_count(len(wanted))
    for at, record in enumerate(wanted):
        with page.expect_download() as download:
            buttons.nth(at).click()
        assert json.loads(Path(download.value.path()).read_text(encoding="utf-8")) == record
        assert download.value.suggested_filename.endswith(".json")


def test_the_raw_data_comes_out_as_it_went_in(browser: Browser, folder: Path, made: Page, two: Page) -> None:
    with visit(browser, folder / "real.html") as real:
        assert check_charts(real) >= 1
        for page, name in ((real, "real"), (made, "made"), (two, "two")):
            check_raw(page, json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))


def test_on_paper_it_is_light_open_and_without_buttons(browser: Browser, folder: Path) -> None:
    with visit(browser, folder / "made.html", theme="dark") as page:
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert colour(page, "html", "backgroundColor") == "rgb(255, 255, 255)"
        assert colour(page, "body", "color") == rgb("ink", "light")
        assert colour(page, "#bars [class*='role-mark'] path", "fill") == rgb("torch", "light")
        assert page.get_by_role("button").count() == 0
        for table in page.locator("figure table").all():
            assert table.is_visible()
        assert page.pdf(format="A4").startswith(b"%PDF")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        page.emulate_media(media="screen")
        assert page.locator("details.data[open]").count() == 0


def test_without_scripts_all_but_the_pictures_is_there(browser: Browser, folder: Path) -> None:
    with visit(browser, folder / "made.html", width=360, java_script_enabled=False) as page:
        assert page.get_by_text("Scripts are off").is_visible()
        assert all(each.is_visible() for each in page.locator("table").all())
        assert page.get_by_role("button").count() == 0
        assert page.get_by_role("link", name="Findings", exact=True).is_visible()


def test_a_chart_that_cannot_be_drawn_leaves_its_numbers_and_the_others(
    browser: Browser, tmp_path: Path
) -> None:
    report = made_up()
    good = report.sections[0].parts[0]
    assert isinstance(good, Chart)
    bad = replace(good, id="bad", spec={"data": {"values": []}, "mark": "nonsense"})
    path = tmp_path / "bad.html"
    path.write_text(
        html.render(replace(report, sections=(Section("s", "S", (bad, good)),))), encoding="utf-8"
    )
    with pytest.raises(AssertionError, match="error: bad: "), visit(browser, path) as page:
        expect(page.locator("#bad")).to_have_text(
            "This chart could not be drawn; its numbers are in the table."
        )
        expect(page.get_by_role("table", name="Speed by workers")).to_be_visible()
        expect(page.locator("#bars svg")).to_have_count(1)


def test_without_a_browser_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("STOKER_CHROMIUM", raising=False)
    with pytest.raises(AssertionError, match=r"make browser.*chromium"):
        browsers.chromium()
