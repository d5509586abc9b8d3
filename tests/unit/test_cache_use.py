"""What sample caches did: summed over workers and pools, kept in the record, shown by top, exports, verdict and report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stoker._record.merge_loaders import merged
from stoker._record.run_page.summary import RecentSums, summary_of
from stoker._record.schema import CacheUse, LoaderRecord, RunRecord
from stoker._runtime.pool.cache_tally import CacheTally
from stoker._runtime.protocol import status_page
from stoker._runtime.protocol.status_page import CACHE, CACHE_COUNTS, StatusPage
from stoker._tools.render.section import Prose, Table
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.page.sections import cache
from stoker._tools.report.verdict.verdict import judge
from stoker._tools.top.lines import board, cache_line
from stoker._tools.top.live import LoaderLive
from tests.unit.records import SECOND, loader, run

USE = CacheUse(
    hits=960, misses=40, hit_bytes=960 << 20, stored_bytes=40 << 20, saved_ns=12 * SECOND, passed=0
)


class Workers:
    """An executor that knows what its caches did."""

    def __init__(self, *counts: int) -> None:
        self.counts = counts

    def cache_counts(self) -> tuple[int, ...]:
        return self.counts


class Collecting(Workers):
    """One during whose counting a garbage collection ends another pool."""

    def __init__(self, made: CacheTally, other: Workers, *counts: int) -> None:
        super().__init__(*counts)
        self.made = made
        self.other: Any = other

    def cache_counts(self) -> tuple[int, ...]:
        self.made.end(self.other)
        return super().cache_counts()


class Silent:
    """An executor that does not."""


def tally(*executors: Any) -> CacheTally:
    made = CacheTally()
    for each in executors:
        made.add(each)
    return made


def write(page: StatusPage, worker: int, *counts: int) -> None:
    row = page.row(worker)
    for place, count in enumerate(counts):
        row[CACHE + place] = count


def test_the_words_are_the_fields_of_the_record_in_order() -> None:
    assert tuple(CacheUse.__dataclass_fields__) == CACHE_COUNTS
    assert CACHE + len(CACHE_COUNTS) <= status_page.WORDS


def test_counts_of_a_worker_outlive_it_and_its_page() -> None:
    page = StatusPage.create()
    try:
        page.clear(0)
        page.clear(1)
        write(page, 0, 1, 2, 3, 4, 5, 6)
        write(page, 1, 10, 20, 30, 40, 50, 60)
        assert page.cache_counts() == (11, 22, 33, 44, 55, 66)
        page.clear(1)  # it died, and its successor starts
        assert page.cache_counts() == (11, 22, 33, 44, 55, 66)
        write(page, 1, 100)
        assert page.cache_counts() == (111, 22, 33, 44, 55, 66)
    finally:
        page.close()
    assert page.cache_counts() == (111, 22, 33, 44, 55, 66)


def test_a_loader_without_a_cache_has_no_figures() -> None:
    executor = Workers(0, 0, 0, 0, 0, 0)
    assert tally(executor).use() is None
    silent = Silent()
    assert tally(silent).use() is None


def test_pools_add_up_and_are_kept_when_they_end() -> None:
    first, second = Workers(1, 2, 3, 4, 5, 6), Workers(10, 0, 0, 0, 0, 0)
    made = tally(first, second)
    made.add(first)  # type: ignore[arg-type]  # a persistent pool begins another epoch
    assert made.use() == CacheUse(11, 2, 3, 4, 5, 6)
    first.counts = (5, 2, 3, 4, 5, 6)  # the last words of its workers
    made.end(first)  # type: ignore[arg-type]
    made.end(first)  # type: ignore[arg-type]
    first.counts = (0,) * 6
    assert made.use() == CacheUse(15, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("ends", [True, False], ids=["in end()", "in use()"])
@pytest.mark.timeout(20)
def test_a_garbage_collection_may_end_a_pool_while_counts_are_summed(ends: bool) -> None:
    """It deadlocked on the tally's own lock: loaders whose iterators are collected in cycles hung in ``next()``."""
    other = Workers(10, 0, 0, 0, 0, 0)
    made = tally(other)
    collecting: Any = Collecting(made, other, 1, 2, 3, 4, 5, 6)
    made.add(collecting)
    if ends:
        made.end(collecting)
    for _ in range(2):
        assert made.use() == CacheUse(11, 2, 3, 4, 5, 6)


def test_a_pool_that_is_gone_keeps_nothing_alive() -> None:
    made = tally(Workers(1, 0, 0, 0, 0, 0))
    assert made.use() is None


def test_the_record_comes_back_and_an_old_one_has_none() -> None:
    told = run(loader(cache=USE)).as_dict()
    assert RunRecord.from_dict(told).loaders[0].cache == USE
    del told["loaders"][0]["cache"]
    assert RunRecord.from_dict(told).loaders[0].cache is None


def test_a_damaged_count_is_refused() -> None:
    from stoker.errors import RecordError

    told = run(loader(cache=USE)).as_dict()
    told["loaders"][0]["cache"]["hits"] = "many"
    with pytest.raises(RecordError, match="hits of a CacheUse"):
        RunRecord.from_dict(told)


def test_loaders_of_one_line_add_up() -> None:
    (found,) = merged([loader(), loader(cache=replace(USE)), loader(cache=CacheUse(hits=40))])
    assert found.cache is not None
    assert (found.cache.hits, found.cache.misses) == (1000, 40)
    assert merged([loader(), loader()])[0].cache is None


def test_top_shows_a_line_only_where_there_is_a_cache() -> None:
    summary = summary_of(loader(cache=USE), RecentSums(), workers=2, at_ns=SECOND)
    assert summary["cache"] is not None
    told = LoaderLive(4711, "train.py", recorded=True, cache=summary["cache"])
    (line,) = [each.text for each in board(told) if "cache" in each.text]
    assert line == "  cache: 96 % hits of 1.0k samples, 40 MiB stored, 12 s of workers' time saved"
    assert summary_of(loader(), RecentSums(), workers=2, at_ns=SECOND)["cache"] is None
    assert not [each for each in board(LoaderLive(4711, "train.py", recorded=True)) if "cache" in each.text]


def test_top_says_what_was_not_stored() -> None:
    summary = summary_of(loader(cache=CacheUse(0, 30, 0, 0, 0, 30)), RecentSums(), workers=2, at_ns=SECOND)
    assert summary["cache"] is not None
    assert cache_line(summary["cache"]) == (
        "cache: 0 % hits of 30 samples, 0 bytes stored, 30 not stored, 0 µs of workers' time saved"
    )


def test_the_verdict_says_what_the_cache_saved() -> None:
    lines = judge(run(loader({("fetch", 0, "io"): 0.5}, cache=USE))).loaders[0].evidence
    assert "The cache had 96% of 1000 samples, which saved 12 s of the workers' time" in lines
    assert not [
        line for line in judge(run(loader({("fetch", 0, "io"): 0.5}))).loaders[0].evidence if "cache" in line
    ]


def reported(*loaders: LoaderRecord) -> Any:
    record = run(*loaders)
    return cache.section(Material((ReportedRun("run", record, judge(record)),)))


def test_the_report_has_a_section_only_where_there_is_a_cache() -> None:
    assert reported(loader()) is None
    prose, table = reported(loader(cache=USE)).parts
    assert isinstance(prose, Prose)
    assert isinstance(table, Table)
    (row,) = table.rows
    assert row[1:] == ("1,000", "96 %", "960 MiB", "40 MiB", "0", "12 s")


def test_the_report_says_when_the_cache_is_too_small() -> None:
    *_, last = reported(loader(cache=CacheUse(100, 900, 1, 1, 1, passed=800))).parts
    assert isinstance(last, Prose)
    assert "`budget`" in last.text
