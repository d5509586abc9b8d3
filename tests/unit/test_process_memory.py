"""What a process occupies, from texts as several kernels write them."""

from __future__ import annotations

import os

from stoker._host.process_memory import Footprint, footprint, parse

HEAP = b"""\
55d0a0000000-55d0a4000000 rw-p 00000000 00:00 0                          [heap]
Size:              65536 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:               30000 kB
Pss:               15000 kB
Pss_Dirty:         15000 kB
Shared_Clean:          0 kB
Shared_Dirty:      20000 kB
Private_Clean:      1000 kB
Private_Dirty:      9000 kB
Referenced:        30000 kB
Anonymous:         30000 kB
KSM:                   0 kB
LazyFree:              0 kB
AnonHugePages:         0 kB
Swap:                  0 kB
SwapPss:               0 kB
Locked:                0 kB
VmFlags: rd wr mr mw me ac
"""
SHARED_FILE = b"""\
7f0000000000-7f0010000000 rw-s 00000000 00:01 77                         /memfd:stoker-arena (deleted)
Size:             262144 kB
Rss:              200000 kB
Pss:              200000 kB
Shared_Clean:          0 kB
Shared_Dirty:          0 kB
Private_Clean:         0 kB
Private_Dirty:    200000 kB
Referenced:       200000 kB
Anonymous:             0 kB
AnonHugePages:         0 kB
ShmemPmdMapped:        0 kB
VmFlags: rd wr sh mr mw me ms
"""
PRIVATE_FILE = b"""\
7f0020000000-7f0030000000 rw-p 00000000 00:01 78                         /memfd:stoker-spec (deleted)
Size:             262144 kB
Rss:              100000 kB
Pss:              100000 kB
Shared_Clean:          0 kB
Shared_Dirty:          0 kB
Private_Clean:     99000 kB
Private_Dirty:      1000 kB
Referenced:       100000 kB
Anonymous:          1000 kB
VmFlags: rd wr mr mw me ac
"""


def test_an_inherited_page_is_not_private_and_a_copied_one_is() -> None:
    assert parse(HEAP) == Footprint(15000 << 10, 10000 << 10)


def test_pages_of_a_shared_file_are_no_copies_whoever_else_has_touched_them() -> None:
    assert parse(SHARED_FILE) == Footprint(200000 << 10, 0)


def test_of_a_file_mapped_privately_only_what_was_written_is_a_copy() -> None:
    assert parse(PRIVATE_FILE) == Footprint(100000 << 10, 1000 << 10)


def test_mappings_add_up() -> None:
    assert parse(HEAP + SHARED_FILE + PRIVATE_FILE) == Footprint(315000 << 10, 11000 << 10)


def test_what_is_no_account_tells_nothing() -> None:
    assert parse(b"") is None
    assert parse(b"55d0a0000000-55d0a4000000 rw-p 00000000 00:00 0 [heap]\n") is None
    assert footprint(1 << 30) is None


def test_this_process_is_told() -> None:
    size = footprint()
    assert size is not None
    assert footprint(os.getpid()) is not None
    assert 0 < size.private_bytes <= size.pss_bytes
