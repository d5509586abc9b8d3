"""The decisions at their borders."""

from __future__ import annotations

import dataclasses

import pytest

from stoker._runtime.scheduler.policy import (
    COPY_OUT_BYTES,
    LEASE_CAP,
    SPLIT_PAYS_NS,
    Policy,
    lease_pays,
    parts_for,
)


@pytest.mark.parametrize(
    ("nbytes", "leased", "pays"),
    [
        (COPY_OUT_BYTES, 0, False),
        (COPY_OUT_BYTES + 1, 0, True),
        (COPY_OUT_BYTES + 1, LEASE_CAP - 1, True),
        (COPY_OUT_BYTES + 1, LEASE_CAP, False),
    ],
)
def test_a_lease_pays_for_large_batches_below_the_cap(nbytes: int, leased: int, pays: bool) -> None:
    assert lease_pays(nbytes, leased) is pays


@pytest.mark.parametrize(
    ("idle", "ranges", "first", "expected_ns", "parts"),
    [
        (1, 8, True, SPLIT_PAYS_NS + 1, 1),
        (4, 1, True, SPLIT_PAYS_NS + 1, 1),
        (4, 8, False, SPLIT_PAYS_NS, 1),
        (4, 8, False, SPLIT_PAYS_NS + 1, 4),
        (4, 3, False, SPLIT_PAYS_NS + 1, 3),
        (4, 8, True, 0, 4),
        (0, 8, True, 0, 1),
    ],
)
def test_parts(idle: int, ranges: int, first: bool, expected_ns: int, parts: int) -> None:
    assert parts_for(idle=idle, ranges=ranges, first=first, expected_ns=expected_ns) == parts


def test_a_policy_is_fixed() -> None:
    policy = Policy(window=2, max_window=4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.window = 3  # type: ignore[misc]
