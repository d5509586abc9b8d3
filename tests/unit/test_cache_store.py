"""The store of samples: what is appended is found again, whole, and by its key only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker._runtime.cache.storage import attaching, backing
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


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Callable[[int], Store]]:
    """Opens a store in a file, as a run with this limit does."""
    handles: list[StoreHandle] = []

    def opened(limit_bytes: int) -> Store:
        handles.append(StoreHandle(StorePlan("", 8, limit_bytes, bytes(32), str(tmp_path), "unit")))
        return handles[-1].open()

    yield opened
    for handle in handles:
        handle.open().close()


def test_a_file_that_a_larger_limit_filled_is_read_whole(on_disk: Callable[[int], Store]) -> None:
    large = on_disk(8 << 20)
    for slot in range(4):
        assert large.append(slot, KEY._replace(first=slot), [bytes([slot]) * (1 << 20)], b"root", b"", 0)
    large.close()
    small = on_disk(1 << 20)
    for slot in range(4):
        found = small.find(slot, KEY._replace(first=slot))
        assert found is not None
        assert bytes(small.view[found.start : found.root_start]) == bytes([slot]) * (1 << 20)
    assert small.full
    assert not small.append(5, KEY._replace(first=5), [b"data"], b"root", b"", 0)


def test_what_others_append_beyond_the_mapping_is_no_entry(on_disk: Callable[[int], Store]) -> None:
    small, large = on_disk(1 << 20), on_disk(64 << 20)
    for slot in range(6):
        assert large.append(slot, KEY._replace(first=slot), [bytes(8 << 20)], b"root", b"", 0)
    assert small.find(5, KEY._replace(first=5)) is None
    assert large.find(5, KEY._replace(first=5)) is not None


def test_a_larger_limit_fills_a_full_file_further(on_disk: Callable[[int], Store]) -> None:
    small, large = on_disk(1 << 20), on_disk(8 << 20)
    assert small.append(0, KEY, [bytes(1 << 19)], b"root", b"", 0)
    assert not small.append(1, KEY, [bytes(1 << 19)], b"root", b"", 0)
    assert (small.full, large.full) == (True, False)
    assert large.append(1, KEY, [bytes(1 << 19)], b"root", b"", 0)


def test_a_disk_that_was_full_is_tried_again_by_the_next_run(on_disk: Callable[[int], Store]) -> None:
    store = on_disk(1 << 20)
    store.stop_filling(OSError(28, "No space left on device"))
    assert store.full
    store.close()
    again = on_disk(1 << 20)
    assert again.append(0, KEY, [b"data"], b"root", b"", 0)


@pytest.mark.parametrize(("rounds", "told"), [(1, 0), (8, 1)])
def test_entries_from_before_a_change_are_named_when_they_fill_the_store(
    store: Store, caplog: pytest.LogCaptureFixture, rounds: int, told: int
) -> None:
    for tag in range(rounds):
        for slot in range(8):
            store.append(slot, EntryKey(slot, 0, tag), [bytes(1 << 14)], b"root", b"", 0)
    store.append(0, EntryKey(9, 0, rounds - 1), [bytes((1 << 20) - 500)], b"root", b"", 0)
    assert store.full
    assert (
        len([text for text in caplog.messages if "before an attribute of the dataset changed" in text])
        == told
    )


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


@pytest.mark.parametrize("nameless", [True, False], ids=["without a name", "with a name"])
@pytest.mark.parametrize("taken", [True, False])
def test_a_new_file_is_there_when_it_is_whole(
    nameless: bool, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not nameless:
        monkeypatch.setattr(backing, "_nameless", lambda folder: -1)
    path = backing.file_in(tmp_path, "label")
    if taken:
        path.write_bytes(b"of before")
    before = os.listdir(tmp_path)
    with pytest.raises(ZeroDivisionError), backing.new_file(path):
        _ = 1 / 0
    assert os.listdir(tmp_path) == before
    with backing.new_file(path) as made:
        os.write(made.fd, b"whole")
        if nameless:  # whoever is killed here leaves nothing
            assert os.listdir(tmp_path) == before
    made.close()
    assert os.listdir(tmp_path) == [path.name]
    assert path.read_bytes() == b"whole"
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_lock_under_which_stores_are_made_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(attaching, "_WAIT_S", 0.0)
    with attaching._alone():
        assert [each.name for each in tmp_path.rglob("*")] == ["stoker"]
        with pytest.raises(TimeoutError, match="locked by a process that does not go on"), attaching._alone():
            pass
    with attaching._alone():
        pass
