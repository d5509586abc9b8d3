"""The run page: whole or not at all for its readers, refused in words, and gone in forked children."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator

import pytest

from stoker._record.run_page import page as pages
from stoker._record.run_page.page import RunPage
from stoker._record.run_page.summary import RecentSums, Summary, summary_of
from stoker.errors import RecordError
from tests.unit import records


def told(**changed: object) -> Summary:
    summary = summary_of(
        records.loader({("fetch", 1, "io"): 0.5}), RecentSums(), workers=2, at_ns=9 * records.SECOND
    )
    summary.update(changed)  # type: ignore[typeddict-item]
    return summary


@pytest.fixture
def page() -> Iterator[RunPage]:
    page = RunPage.create()
    yield page
    page.close()


@pytest.fixture
def fd(page: RunPage) -> Iterator[int]:
    """The page as another process opens it."""
    found = [entry for entry in os.listdir("/proc/self/fd") if _inode(f"/proc/self/fd/{entry}") == page.inode]
    assert len(found) == 1
    opened = os.open(f"/proc/self/fd/{found[0]}", os.O_RDONLY)
    yield opened
    os.close(opened)


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:  # the descriptor that listed the directory
        return None


def test_a_new_page_names_its_owner_and_has_nothing_to_tell(fd: int) -> None:
    reading = pages.read(fd)
    assert reading.owner_pid == os.getpid()
    assert reading.owner_start == pages.started(f"/proc/{os.getpid()}")
    assert (reading.asked_ns, reading.given_ns, reading.steps, reading.summary) == (0, 0, 0, None)


def test_a_reader_finds_words_and_summary(page: RunPage, fd: int) -> None:
    page.words[pages.ASKED_NS] = 17
    page.words[pages.STEPS] = (1 << 63) - 1
    assert page.write(told(name="übung"))
    assert page.write(told(name="valid"))
    reading = pages.read(fd)
    assert (reading.asked_ns, reading.steps) == (17, (1 << 63) - 1)
    assert reading.summary == told(name="valid")


def test_a_summary_that_is_being_written_is_not_shown_and_the_words_are(page: RunPage, fd: int) -> None:
    page.write(told())
    page.words[pages.EDITION] += 1
    page.words[pages.GIVEN_NS] = 5
    reading = pages.read(fd)
    assert reading.summary is None
    assert reading.given_ns == 5


def test_a_torn_summary_is_read_again(page: RunPage, fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    page.write(told(name="first"))
    head = os.pread(fd, pages.PAGE_BYTES, 0)
    page.write(told(name="second"))
    pread, stale = os.pread, [head[: pages.WORDS * 8]]

    def torn(fd: int, count: int, offset: int) -> bytes:
        """The first answer is the head as it was before the second summary was written."""
        return stale.pop() if stale else pread(fd, count, offset)

    monkeypatch.setattr(os, "pread", torn)
    summary = pages.read(fd).summary
    assert summary is not None
    assert summary["name"] == "second"
    assert not stale


def test_a_write_that_was_cut_off_is_made_good_by_the_next(page: RunPage, fd: int) -> None:
    page.write(told())
    page.words[pages.EDITION] += 1  # Ctrl-C, in the middle
    page.write(told(name="later"))
    summary = pages.read(fd).summary
    assert summary is not None
    assert summary["name"] == "later"


def test_another_version_is_refused_in_words(page: RunPage, fd: int) -> None:
    page.words[pages.FORMAT] = 7
    with pytest.raises(RecordError, match=r"version 7, and this stoker reads 1"):
        pages.read(fd)


@pytest.mark.parametrize("content", [b"", b"short", bytes(pages.PAGE_BYTES)])
def test_other_files_are_no_run_pages(content: bytes) -> None:
    fd = os.memfd_create("other")
    try:
        os.write(fd, content)
        with pytest.raises(RecordError, match="no run page"):
            pages.read(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("text", [b"[1, 2]", b"{", b"\xff"])
def test_a_damaged_summary_is_refused_in_words(page: RunPage, fd: int, text: bytes) -> None:
    page.write(told())
    pages_map = page._map
    assert pages_map is not None
    pages_map[pages.WORDS * 8 : pages.WORDS * 8 + len(text)] = text
    page.words[pages.LENGTH] = len(text)
    page.words[pages.CHECKSUM] = zlib.crc32(text)
    with pytest.raises(RecordError, match="damaged"):
        pages.read(fd)


def test_a_length_out_of_all_bounds_reads_nothing_beyond_the_page(page: RunPage, fd: int) -> None:
    page.write(told())
    page.words[pages.LENGTH] = 1 << 60
    assert pages.read(fd).summary is None
    page.words[pages.LENGTH] = -1
    assert pages.read(fd).summary is None


def test_what_does_not_fit_leaves_the_last_summary(page: RunPage, fd: int) -> None:
    page.write(told(name="fits"))
    assert not page.write(told(name="x" * pages.PAGE_BYTES))
    summary = pages.read(fd).summary
    assert summary is not None
    assert summary["name"] == "fits"


def test_what_a_forked_child_writes_goes_nowhere(page: RunPage, fd: int) -> None:
    page.write(told(name="parent"))
    page.words[pages.STEPS] = 3
    child = os.fork()
    if child == 0:
        try:
            page.words[pages.STEPS] = 99
            wrote = page.write(told(name="child"))
            open_here = [_inode(f"/proc/self/fd/{entry}") for entry in os.listdir("/proc/self/fd")]
            os._exit(
                0 if not wrote and page._map is None and open_here.count(page.inode) == 1 else 1
            )  # 1: our own fixture's
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    reading = pages.read(fd)
    assert reading.steps == 3
    assert reading.summary is not None
    assert reading.summary["name"] == "parent"
    assert page._map is not None


def test_close_is_idempotent_and_words_may_still_be_written() -> None:
    page = RunPage.create()
    page.close()
    page.close()
    page.words[pages.ASKED_NS] = 4
    assert page._map is None
    assert not page.write(told())


def test_a_page_that_nobody_closes_goes_with_its_last_reference() -> None:
    RunPage.create()  # the leak guard looks


def test_without_memfd_the_page_is_a_file_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    page = RunPage.create()
    links = [
        os.readlink(f"/proc/self/fd/{entry}")
        for entry in os.listdir("/proc/self/fd")
        if _inode(f"/proc/self/fd/{entry}")
    ]
    assert [
        link
        for link in links
        if os.path.basename(link).startswith(pages.NAME) and link.endswith(" (deleted)")
    ]
    page.close()


def test_start_times_tell_processes_apart() -> None:
    assert pages.started() == pages.started(f"/proc/{os.getpid()}") is not None
    assert pages.started(f"/proc/{1 << 30}") is None
