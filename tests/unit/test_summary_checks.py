"""Summaries of run pages that no loader writes: refused in words, before ``stoker top`` computes with them."""

from __future__ import annotations

import copy
import json
import os
import zlib
from typing import Any

import pytest

from stoker._record.run_page import page as pages
from stoker._record.run_page.summary import RecentSums, summary_of
from stoker._record.run_page.summary_checks import checked
from stoker._record.schema import Event, SlowestSample
from stoker.errors import RecordError
from tests.unit import records


def whole() -> dict[str, Any]:
    """As a reader decodes it."""
    loader = records.loader(
        {("fetch", 1, "io"): 0.5},
        slowest=[SlowestSample("a", 5, 1, 0, 3, 2)],
        events=[Event(5, "stall", "no worker is at work")],
    )
    found: dict[str, Any] = json.loads(
        json.dumps(summary_of(loader, RecentSums(), workers=2, at_ns=records.SECOND))
    )
    return found


def test_what_a_loader_writes_is_sound() -> None:
    assert checked(whole()) == whole()


def test_what_an_older_stoker_did_not_write_is_none() -> None:
    older = whole()
    del older["cache"]
    assert checked(older)["cache"] is None


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("workers",), 10**400, "workers is no number that fits"),
        (("workers",), True, "workers is no number that fits"),
        (("window",), 1.5, "window is no number that fits"),
        (("world_size",), None, "world_size is no number that fits"),
        (("slowest",), [7], "slowest is a int"),
        (("slowest", 0, "ns"), "5", "slowest.ns is no number that fits"),
        (("slowest",), {}, "slowest is a dict"),
        (("event", "reason"), "x" * 200_000, "event.reason is no text"),
        (("recent", "causes"), {"io": float("inf")}, "recent.causes is no number that fits"),
        (("recent",), [], "recent is a list"),
        (("whole", "busy_ns"), [], "whole.busy_ns is no number that fits"),
    ],
)
def test_what_no_loader_writes_is_refused(path: tuple[Any, ...], value: Any, words: str) -> None:
    damaged = copy.deepcopy(whole())
    inner: Any = damaged
    for each in path[:-1]:
        inner = inner[each]
    inner[path[-1]] = value
    with pytest.raises(RecordError, match=f"the run page's summary is damaged: {words}"):
        checked(damaged)


def test_a_missing_entry_is_named() -> None:
    damaged = whole()
    del damaged["recent"]["steps"]
    with pytest.raises(RecordError, match=r"recent\.steps is missing"):
        checked(damaged)


@pytest.mark.parametrize("summary", [b"[" * 30_000, b"7", b"{"])
def test_a_page_with_such_a_summary_is_refused(summary: bytes) -> None:
    page = pages.RunPage.create()
    try:
        page.write(whole())  # type: ignore[arg-type]
        assert page._map is not None
        page._map[pages._START : pages._START + len(summary)] = summary
        page.words[pages.LENGTH] = len(summary)
        page.words[pages.CHECKSUM] = zlib.crc32(summary)
        fd = os.memfd_create("copy")
        os.write(fd, page._map[:])
        with pytest.raises(RecordError, match="the run page's summary is damaged"):
            pages.read(fd)
        os.close(fd)
    finally:
        page.close()
