"""A real browser for tests: Debian's Chromium, driven by Playwright. One per module of tests; ``visit`` opens a page and judges it.

What a page does wrong by itself (an error, a warning, a dialog, a request for anything but the file) fails whoever visits it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import psutil
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Request,
    TimeoutError,
    sync_playwright,
)

DRAWN = "html[data-drawn]"
"""What a report's page matches when its charts are there."""
PATIENCE_MS = 20_000
"""For what comes within a second on a machine that has nothing else to do."""


def chromium() -> str:
    """Where it is. Raises AssertionError, which says what to install: a test of a page must not pass without a browser."""
    found = os.environ.get("STOKER_CHROMIUM") or shutil.which("chromium")
    if found is None or not Path(found).is_file():
        raise AssertionError(
            "these tests need Debian's Chromium: run `make browser` (apt-get install chromium fonts-dejavu-core), "
            "or name another one in STOKER_CHROMIUM"
        )
    return found


@contextmanager
def launched(lasting_children: set[int]) -> Iterator[Browser]:
    """A browser, and the driver between it and us, whose pid ``lasting_children`` holds as long as it lives."""
    path = chromium()
    before = {each.pid for each in psutil.Process().children()}
    with sync_playwright() as playwright:
        drivers = {each.pid for each in psutil.Process().children()} - before
        lasting_children |= drivers
        # Root has no sandbox; /dev/shm of a container may be small.
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()
    lasting_children -= drivers


class Watch:
    """What a page does that it should not, in words."""

    def __init__(self, address: str) -> None:
        self.wrong: list[str] = []
        self._address = address

    def asked(self, request: Request) -> None:
        """Only the file itself may be; what a page makes of its own bytes leaves it not."""
        if request.url != self._address and not request.url.startswith("blob:"):
            self.wrong.append(f"request: {request.url}")

    def said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text}")

    def raised(self, error: Error) -> None:
        self.wrong.append(f"raised: {error}")

    def stopped(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@contextmanager
def visit(
    browser: Browser, path: Path, *, width: int = 1280, theme: Literal["light", "dark"] = "light", **more: Any
) -> Iterator[Page]:
    """The page, offline and drawn. ``more`` goes to the browser's context. Fails afterwards for what went wrong meanwhile."""
    watch = Watch(path.as_uri())
    context = browser.new_context(
        viewport={"width": width, "height": 800},
        color_scheme=theme,
        offline=True,
        reduced_motion="reduce",
        **more,
    )
    try:
        context.set_default_timeout(PATIENCE_MS)
        context.on("request", watch.asked)
        page = context.new_page()
        page.on("console", watch.said)
        page.on("pageerror", watch.raised)
        page.on("dialog", watch.stopped)
        page.goto(path.as_uri())
        if more.get("java_script_enabled", True):
            try:
                page.wait_for_selector(DRAWN, state="attached")
            except TimeoutError:
                assert not watch.wrong, "; ".join(watch.wrong)
                raise
        yield page
        assert not watch.wrong, "; ".join(watch.wrong)
    finally:
        context.close()
