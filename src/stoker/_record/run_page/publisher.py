"""Publishes a recorder's summary on its run page, and remembers what was published last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stoker._record.run_page import page
from stoker._record.run_page.summary import RecentSums, Summary, summary_of, with_event
from stoker._record.schema import Event, LoaderRecord, Run


class PagePublisher:
    """One per recorder, and used under its lock. ``latest`` is what the page says; any thread may read it."""

    def __init__(self) -> None:
        self.page: page.RunPage | None = None
        self.latest: Summary | None = None
        self._recently = RecentSums()

    def begin(self) -> None:
        """Have a page, unless there are too many. Raises OSError when there is none to be had."""
        if page.pages() < page.MOST:
            self.page = page.RunPage.create()

    def rest(self) -> None:
        """The loader is not iterated now. When there are many pages, this one is removed until it is."""
        if self.page is not None and page.pages() > page.MOST_IDLE:
            self.page.close()
            self.page = None

    def write(self, loader: LoaderRecord, run: Run, last: Mapping[str, int], **known: Any) -> None:
        """How things are. ``last`` is the row of the last batch, if there was one; ``known`` goes to ``summary_of``."""
        if self.page is None:
            return
        self.latest = summary_of(
            loader,
            self._recently,
            began_ns=run.began_ns,
            depth=last.get("depth"),
            undelivered_bytes=last.get("undelivered_bytes"),
            rank=run.rank,
            world_size=run.world_size,
            **known,
        )
        words = self.page.words
        words[page.GIVEN_NS] = last.get("given_ns", 0)
        words[page.STEPS] = loader.totals.steps
        self.page.write(self.latest)

    def event(self, event: Event, run: Run, counts: Mapping[str, int], now_ns: int) -> None:
        """Publish an event at once when the page is old, as it is while the consumer waits."""
        latest = self.latest
        if self.page is not None and latest is not None and now_ns - latest["at_ns"] > page.PERIOD_NS:
            self.latest = with_event(latest, event, counts, run.began_ns)
            self.page.write(self.latest)

    def close(self) -> None:
        """Take the page away. Idempotent."""
        if self.page is not None:
            self.page.close()
