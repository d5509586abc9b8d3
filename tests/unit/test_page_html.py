"""A report as HTML: whatever a record says stays text, ids are safe, raw data comes out again and fits."""

from __future__ import annotations

import base64
import gzip
import json
import random
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker._tools.render import chart_library, html
from stoker._tools.render.embedded_data import embedded
from stoker._tools.render.markup import MOST_ROWS, Markup, table, text
from stoker._tools.render.section import Chart, Code, Prose, Remark, Report, Section, SideBySide, Table

HOSTILE = (
    """</script><script>alert(1)</script><!-- <img src=x onerror=alert(1)> "' & ]]> ` </title></style>"""
)


@pytest.fixture(autouse=True)
def _no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real one takes seconds to bundle, and the browser's tests have it."""
    monkeypatch.setattr(chart_library, "script", lambda: "const x = '</script><!--';")


def hostile_report() -> Report:
    cells = Table(HOSTILE, (HOSTILE, "n"), ((HOSTILE, "1"),), numeric=frozenset({1}))
    chart = Chart(HOSTILE, HOSTILE, HOSTILE, {"data": {"values": [{"a": HOSTILE}]}, "mark": "bar"}, cells)
    remark = Remark(HOSTILE, "high", HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    parts = (
        Prose(HOSTILE),
        Code(HOSTILE, HOSTILE),
        cells,
        chart,
        remark,
        SideBySide(((HOSTILE, (remark, chart)),)),
    )
    return Report(
        HOSTILE, HOSTILE, "high", (Section(HOSTILE, HOSTILE, parts),) * 2, {HOSTILE: {"a": HOSTILE}}
    )


class Outline(HTMLParser):
    """What a browser would make of it, roughly: elements with their attributes, and ids."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def values(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.elements if name in attrs]


def test_hostile_texts_break_out_of_nothing() -> None:
    outline = Outline(html.render(hostile_report()))
    tags = [tag for tag, _ in outline.elements]
    assert tags.count("script") == 4  # page, specs, charts, one record
    assert "img" not in tags
    assert tags.count("title") == tags.count("style") == 1
    assert not [name for _, attrs in outline.elements for name in attrs if name.startswith("on")]


def test_ids_are_unique_and_links_lead_somewhere() -> None:
    outline = Outline(html.render(hostile_report()))
    ids = outline.values("id")
    assert len(ids) == len(set(ids))
    for name in ("aria-labelledby", "aria-describedby", "data-from"):
        assert set(outline.values(name)) <= set(ids)
    assert {each[1:] for each in outline.values("href")} <= set(ids)
    assert all(each.startswith("#") for each in outline.values("href"))


def test_headings_go_down_one_step_at_a_time() -> None:
    levels = [
        int(tag[1])
        for tag, _ in Outline(html.render(hostile_report())).elements
        if tag in ("h1", "h2", "h3", "h4")
    ]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_policy_lets_nothing_out_and_only_our_scripts_run() -> None:
    outline = Outline(html.render(hostile_report()))
    policy = next(
        attrs["content"] or "" for tag, attrs in outline.elements if tag == "meta" and "http-equiv" in attrs
    )
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "eval" not in policy
    assert policy.split("style-src")[0].count("sha256-") == 2


@given(st.text(alphabet="ab`<&", max_size=12))
@settings(max_examples=60)
def test_backticks_pair_up_and_nothing_is_lost(plain: str) -> None:
    made = text(plain)
    assert made.count("<code>") == plain.count("`") // 2
    bare = made.replace("<code>", "").replace("</code>", "").replace("&lt;", "<").replace("&amp;", "&")
    assert bare.replace("`", "") == plain.replace("`", "")


def test_a_long_table_says_what_it_leaves_out() -> None:
    long = Table("t", ("n",), tuple((str(each),) for each in range(MOST_ROWS + 7)))
    assert "7 more rows are not shown" in table(long)
    assert "more rows" not in table(Table("t", ("n",), long.rows[:MOST_ROWS]))


def test_equal_ids_are_told_apart() -> None:
    markup = Markup()
    assert [markup.name(each) for each in ("a b", "a-b", "<", "<")] == ["a-b", "a-b-2", "part", "part-2"]


@pytest.mark.parametrize(
    ("severity", "word"), [("high", "Costs much"), ("none", "Nothing to change"), ("", None)]
)
def test_severity_is_said_in_words(severity: str, word: str | None) -> None:
    page = html.render(Report("title", "It `waits`.", severity, ()))
    assert "It <code>waits</code>." in page
    assert word is None or f"<span>{word}</span>" in page
    assert ('class="shape"' in page) == (word is not None)


def record(steps: int, seed: int = 0) -> dict[str, Any]:
    """Numbers that do not pack well, as those of a clock do."""
    draw = random.Random(seed)
    columns = {name: [draw.getrandbits(30) for _ in range(steps)] for name in ("seq", "wait_ns")}
    return {
        "format": "stoker-run",
        "loaders": [{"steps": columns, "steps_dropped": 5, "name": "one"}, {"steps": {}, "steps_dropped": 0}],
    }


def taken_out(packed: str | None) -> Any:
    assert packed is not None
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_raw_data_that_fits_comes_out_as_it_was() -> None:
    raw = {"a": record(100), "b": {"any": ["thing", None, 1.5]}}
    found = embedded(raw, 1_000_000)
    assert {each.name: taken_out(each.packed) for each in found} == raw
    assert [each.left_out for each in found] == [0, 0]


def test_raw_data_that_does_not_fit_loses_the_middle_of_its_steps() -> None:
    whole = record(5000)
    demo = {"acts": {"profile": {"record": whole}}}
    (found,) = embedded({"demo": demo}, 20_000)
    assert len(found.packed or "") <= 20_000
    loader = taken_out(found.packed)["acts"]["profile"]["record"]["loaders"][0]
    kept = loader["steps"]["seq"]
    assert loader["steps_dropped"] == 5 + 5000 - len(kept)
    assert found.left_out == 5000 - len(kept)
    assert kept[0] == whole["loaders"][0]["steps"]["seq"][0]
    assert kept[-1] == whole["loaders"][0]["steps"]["seq"][-1]
    assert whole["loaders"][0]["steps_dropped"] == 5, "the record itself is left alone"


def test_what_cannot_be_thinned_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    raw = {"a": {"x": [draw.random() for _ in range(10_000)]}}
    assert embedded(raw, 1000)[0].packed is None
    monkeypatch.setattr(html, "MOST_BYTES", 60_000)
    assert "too large for this page" in html.render(Report("t", "h", "none", (), raw))


def test_a_page_stays_below_its_limit_and_says_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "MOST_BYTES", 60_000)
    page = html.render(Report("t", "h", "none", (), {"one": record(8000), "two": record(8000, seed=1)}))
    assert len(page.encode()) < html.MOST_BYTES
    assert page.count("steps from the middle are left out") == 2
