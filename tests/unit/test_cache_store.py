"""The store of samples: what is appended is found again, whole, and by its key only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stoker._runtime.cache.storage import backing
from stoker._runtime.cache.storage.attaching import StoreHandle, StorePlan
from stoker._runtime.cache.storage.store import ENTRY_BYTES, EntryKey, Store, read_header

KEY = EntryKey(3, 0, 77)


@pytest.fixture
def store() -> Iterator[Store]:
    handle = StoreHandle(StorePlan("unit", 8, 1 << 20, bytes(32)))
    yield handle.open()
    handle.open().close()


def test_an_entry_is_found_by_its_key_only(store: Store) -> None:
    stored = store.append(3, KEY, [b"data" * 16], b"root", b"facts", 5)
    entry = store.find(3, KEY)
    assert entry is not None
    assert bytes(store.view[entry.start : entry.root_start]) == b"data" * 16
    assert bytes(store.view[entry.root_start : entry.root_stop]) == b"root"
    assert bytes(store.view[entry.root_stop : entry.facts_stop]) == b"facts"
    assert entry.cost_ns == 5
    assert stored == store.stored_bytes == 192
    assert store.entries == 1
    assert store.find(4, KEY) is None
    assert store.find(3, KEY._replace(tag=78)) is None
    assert store.find(3, KEY._replace(tag=77 + (1 << 24))) is None, "the word has the low bits of a tag only"
    assert store.find(3, KEY._replace(first=2)) is None


def test_what_does_not_fit_is_not_kept(store: Store) -> None:
    assert not store.append(3, KEY, [bytes(1 << 20)], b"root", b"", 0)
    assert not store.full, "smaller ones fit"
    assert store.append(4, KEY, [bytes(1 << 19)], b"root", b"", 0)
    assert not store.append(3, KEY, [bytes(1 << 19)], b"root", b"", 0)
    assert store.full
    assert store.find(3, KEY) is None


def test_a_word_beyond_the_end_of_the_file_is_no_entry(store: Store) -> None:
    store.append(3, KEY, [b"data" * 16], b"root", b"", 0)
    store.words[3] += 1 << 20
    assert store.find(3, KEY) is None


def test_an_entry_whose_length_is_wrong_is_no_entry(store: Store) -> None:
    store.append(3, KEY, [b"data" * 16], b"root", b"", 0)
    at = store.data_start
    store.view[at + 32 : at + 40] = (1 << 40).to_bytes(8, "little")
    assert store.find(3, KEY) is None
    assert ENTRY_BYTES == 64


def test_a_header_that_was_changed_is_no_header(store: Store) -> None:
    assert read_header(store.backing.fd) is not None
    store.view[9] = 1
    assert read_header(store.backing.fd) is None


def test_shared_memory_is_found_by_its_name() -> None:
    assert backing.find_memory("unit-other") is None
    made = backing.create_memory("unit-other")
    found = backing.find_memory("unit-other")
    assert found is not None
    made.close()
    found.close()
