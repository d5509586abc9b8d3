"""The documentation builds without a warning, asks nobody for anything, leads nowhere that is not there, and is complete."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest
from playwright.sync_api import expect

import stoker
from stoker.cli.main import main
from tests import browser as browsers

ROOT = Path(__file__).parents[2]

# Attributes by which a browser fetches something of its own accord.
FETCHED = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
}


class Page(HTMLParser):
    """What a page is called by, where it leads, what it fetches, and its text."""

    def __init__(self, path: Path):
        super().__init__()
        self.path = path
        self.names: set[str] = set()
        self.leads: set[str] = set()
        self.fetches: set[str] = set()
        self.words: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.leads.add(given["href"])
        self.fetches |= {given[name] for name in FETCHED.get(tag, ()) if name in given}

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def browser(lasting_children):
    with browsers.launched(lasting_children) as found:
        yield found


def test_the_site_is_whole(tmp_path, browser):
    """One build, all questions: it takes seconds."""
    site = tmp_path / "site"
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    ended = subprocess.run(build, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert fetched_from_elsewhere(pages, site) == []
    assert dead_ends(pages, site) == []
    assert untold_commands(pages[site / "cli.html"]) == []
    told = pages[site / "api.html"].names
    assert [name for name in stoker.__all__ if name != "__version__" and f"stoker.{name}" not in told] == []
    assert [
        path
        for path in (ROOT / "docs/checks").glob("STK*.md")
        if not (site / "checks" / f"{path.stem}.html").exists()
    ] == []
    opens_from_the_disk(site, browser)


def test_links_lead_somewhere_in_the_repository_too():
    """Where pages are read as files, as on a forge. The site's own places (anchors) are judged by the build."""
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    assert [
        (str(path.relative_to(ROOT)), link)
        for path in texts
        for link in re.findall(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)", path.read_text(encoding="utf-8"))
        if not (path.parent / link).exists()
    ] == []


def test_every_decision_is_listed():
    listed = (ROOT / "docs/adr/README.md").read_text(encoding="utf-8")
    assert [path.name for path in (ROOT / "docs/adr").glob("0*.md") if f"]({path.name})" not in listed] == []


def opens_from_the_disk(site, browser):
    """As people do who have only built it: search works without a server, and nothing is asked of another host."""
    context = browser.new_context(offline=True, viewport={"width": 390, "height": 800})
    wrong: list[str] = []

    def asked(request):
        if not request.url.startswith(site.as_uri()):
            wrong.append(request.url)

    context.on("request", asked)
    page = context.new_page()
    page.on("console", lambda said: wrong.append(f"{said.type}: {said.text}"))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto((site / "quickstart.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.set_viewport_size({"width": 1300, "height": 800})
    page.locator(".md-search__input").click()
    page.keyboard.type("worker copies objects")
    found = page.locator(".md-search-result__link")
    expect(found.first).to_be_visible(timeout=browsers.PATIENCE_MS)
    found.filter(has_text="STK601").first.click()
    expect(page.locator("h1")).to_contain_text("Workers copy the dataset's Python objects")
    context.close()
    assert wrong == []


def fetched_from_elsewhere(pages, site):
    """What the browser would ask another host for, in pages and in style sheets."""
    found = [
        (str(page.path.relative_to(site)), url)
        for page in pages.values()
        for url in page.fetches
        if urlsplit(url).netloc
    ]
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        found += [
            (str(sheet.relative_to(site)), sign)
            for sign in ("url(http", "url(//", 'url("http', "@import")
            if sign in text
        ]
    return found


def dead_ends(pages, site):
    """Links to a page, or a place in one, that does not exist."""
    found = []
    for page in pages.values():
        for link in page.leads:
            parts = urlsplit(link)
            if (
                parts.scheme or parts.netloc or page.path.name == "404.html"
            ):  # served at any depth, so its links are absolute
                continue
            target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
            anchor = unquote(parts.fragment)
            if not (anchor in pages[target].names | {""} if target in pages else target.is_file()):
                found.append((str(page.path.relative_to(site)), link))
    return found


def untold_commands(page):
    """Commands and options that the reference does not have."""
    text = " ".join(" ".join(page.words).split())
    context = click.Context(main)
    found = []
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        found += [name] if f"stoker {name}" not in text else []
        found += [
            f"{name} {option}"
            for each in command.params
            if isinstance(each, click.Option) and not each.hidden
            for option in each.opts
            if option not in text
        ]
    return found
