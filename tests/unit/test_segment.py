"""Pieces of files are read and written whole, whatever the system does at once."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from stoker._pickling import segment


@pytest.fixture
def fd() -> Iterator[int]:
    made = segment.anonymous_file("stoker-test")
    yield made
    os.close(made)


@pytest.mark.parametrize("most", [1, 3, 1 << 30])
def test_what_is_written_at_a_place_is_read_there(
    fd: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "_MOST_AT_ONCE", most)
    assert segment.write_at(fd, memoryview(b"0123456789"), 100) == 10
    assert segment.read_at(fd, 10, 100) == b"0123456789"
    assert segment.read_at(fd, 4, 98) == b"\0\x0001"


def test_a_file_that_ends_gives_what_it_has(fd: int) -> None:
    segment.write_at(fd, b"0123", 0)
    assert segment.read_at(fd, 10, 2) == b"23"
    assert segment.read_at(fd, 10, 50) == b""
