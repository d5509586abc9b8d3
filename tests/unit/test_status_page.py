"""The status page: one writer per row, readable through another mapping, gone when closed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from stoker._runtime.protocol import status_page
from stoker._runtime.protocol.status_page import StatusPage


@pytest.fixture
def page() -> Iterator[StatusPage]:
    page = StatusPage.create()
    yield page
    page.close()


def work(page: StatusPage, worker: int, *claim: int) -> None:
    epoch, seq, attempt, part = claim
    status_page.begin_task(page.row(worker), epoch, seq, attempt, part, 5)


def test_a_new_page_names_its_parent_and_claims_nothing(page: StatusPage) -> None:
    assert page.control[status_page.PARENT_PID] == os.getpid()
    assert page.control[status_page.EPOCH] == page.control[status_page.LAYOUT] == 0
    assert all(page.claim(worker) is None for worker in (0, 1, status_page.MAX_WORKERS - 1))


def test_rows_are_apart(page: StatusPage) -> None:
    workers = (0, 1, 2, status_page.MAX_WORKERS - 1)
    for worker in workers:
        for word in range(status_page.WORDS):
            page.row(worker)[word] = 1000 * worker + word
    set_by_create = {status_page.PARENT_PID: os.getpid(), status_page.FORMAT: status_page.VERSION}
    assert list(page.control) == [set_by_create.get(word, 0) for word in range(status_page.WORDS)]
    for worker in workers:
        assert list(page.row(worker)) == [1000 * worker + word for word in range(status_page.WORDS)]


def test_another_mapping_sees_the_claim(page: StatusPage) -> None:
    other = StatusPage(os.dup(page.fd))
    work(page, 3, 7, 12, 1, 2)
    assert other.claim(3) == (7, 12, 1, 2)
    assert other.claim(2) is None
    other.close()


def test_an_idle_worker_claims_nothing_whatever_it_did_last(page: StatusPage) -> None:
    work(page, 0, 1, 2, 3, 4)
    page.row(0)[status_page.PHASE] = status_page.IDLE
    assert page.claim(0) is None


def test_clear_forgets_one_worker_only(page: StatusPage) -> None:
    work(page, 0, 1, 2, 3, 4)
    work(page, 1, 1, 3, 0, 0)
    page.clear(0)
    assert list(page.row(0)) == [0] * status_page.WORDS
    assert page.claim(1) == (1, 3, 0, 0)
    assert page.control[status_page.PARENT_PID] == os.getpid()


def test_words_hold_a_layout_and_nanoseconds(page: StatusPage) -> None:
    largest = (1 << 63) - 1
    page.control[status_page.LAYOUT] = largest
    page.row(0)[status_page.SINCE_NS] = largest
    assert page.control[status_page.LAYOUT] == page.row(0)[status_page.SINCE_NS] == largest


def test_close_is_idempotent_and_a_row_held_elsewhere_is_no_error() -> None:
    page = StatusPage.create()
    row = page.row(0)
    page.close()
    page.close()
    row[status_page.ROW] = 5
    assert row[status_page.ROW] == 5


def test_without_memfd_the_page_is_a_file_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    page = StatusPage.create()
    assert os.fstat(page.fd).st_nlink == 0
    work(page, 0, 1, 2, 3, 4)
    assert page.claim(0) == (1, 2, 3, 4)
    page.close()


def test_the_page_is_not_inherited_across_exec(page: StatusPage) -> None:
    assert not os.get_inheritable(page.fd)


def test_a_task_that_begins_is_on_no_row_yet(page: StatusPage) -> None:
    row = page.row(3)
    row[status_page.ROW], row[status_page.INDEX] = 7, 70
    status_page.begin_task(row, 2, 11, 1, 4, 99)
    assert (row[status_page.ROW], row[status_page.INDEX]) == (status_page.NO_ROW, status_page.NO_INDEX)
    assert (row[status_page.SINCE_NS], row[status_page.PHASE]) == (99, status_page.WORKING)
    assert page.claim(3) == (2, 11, 1, 4)
