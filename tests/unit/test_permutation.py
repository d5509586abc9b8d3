"""A shuffled order that is computed: a bijection, pinned, and random as far as these statistics can see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stoker._runtime.plan import permutation
from stoker._runtime.plan.permutation import MOST, TABLE_LENGTH, Permutation, hashed


def whole(length: int, seed: int, epoch: int = 0) -> list[int]:
    return Permutation(length, seed, epoch).block(0, length).tolist()


def network(length: int, seed: int) -> Permutation:
    """The network of rounds, for lengths too that are tables otherwise."""
    built = Permutation(length, seed)
    built._table = None
    return built


def chi_square(counts: np.ndarray) -> float:
    """Distance from even counts, in standard deviations: above 6 once in a billion runs, were they even."""
    expected = counts.sum() / counts.size
    degrees = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - degrees) / (2 * degrees) ** 0.5)


def test_tables_are_bijections() -> None:
    for length in range(1, 2000):
        found = Permutation(length, length).block(0, length)
        assert np.array_equal(np.sort(found), np.arange(length, dtype=np.uint64)), length


def test_networks_are_bijections() -> None:
    for length in [*range(1, 400), *range(400, 2000, 13), 4095, 4096, 4097, 4160, 4161, 65_536, 65_537]:
        found = network(length, length).at(np.arange(length, dtype=np.uint64))
        assert np.array_equal(np.sort(found), np.arange(length, dtype=np.uint64)), length


@settings(max_examples=40)
@given(
    length=st.integers(1, MOST),
    seed=st.integers(),
    epoch=st.integers(),
    far=st.floats(0, 1),
    step=st.integers(1, 9),
)
@example(length=MOST, seed=0, epoch=0, far=0.0, step=1)
@example(length=MOST, seed=0, epoch=0, far=1.0, step=1)
def test_blocks_agree_with_single_elements(length: int, seed: int, epoch: int, far: float, step: int) -> None:
    order = Permutation(length, seed, epoch)
    start = min(length - 1, int(far * length))
    stop = min(length, start + 100)
    found = order.block(start, stop, step).tolist()
    assert found == [order[place] for place in range(start, stop, step)]
    assert len(set(found)) == len(found)
    assert all(0 <= element < length for element in found)


def test_blocks_of_a_large_order_do_not_meet() -> None:
    order = Permutation(1_000_003, 5)
    seen = np.zeros(len(order), dtype=bool)
    for start in range(0, len(order), 1 << 16):
        seen[order.block(start, min(len(order), start + (1 << 16)))] = True
    assert seen.all()


def test_values_are_pinned() -> None:
    """Another order would be another meaning of saved states: that needs a new version of the state."""
    assert whole(10, 0) == [1, 2, 3, 5, 4, 8, 9, 6, 0, 7]
    assert Permutation(20_000_000, 1, 2).block(0, 5).tolist() == [
        13289666,
        14564089,
        13276576,
        4952884,
        8259118,
    ]
    assert [Permutation(10**15, 3)[place] for place in (0, 10**15 - 1)] == [736762755509727, 170987855129432]
    assert hashed(np.arange(2, dtype=np.uint64), 7).tolist() == [1346066267577507604, 7191089600892374487]


def test_seeds_and_epochs_give_other_orders() -> None:
    for length in (30, 5000):
        orders = {tuple(whole(length, seed, epoch)) for seed in range(8) for epoch in range(8)}
        assert len(orders) == 64
        assert whole(length, 3, 4) == whole(length, 3, 4)


@pytest.mark.parametrize("length", [40, 5000])
def test_where_an_element_lands_is_even_over_seeds(length: int) -> None:
    places = [Permutation(length, seed)[0] for seed in range(800)]
    assert chi_square(np.histogram(places, bins=20, range=(0, length))[0]) < 6


def test_all_orders_of_few_elements_are_met_equally_often() -> None:
    orders = [tuple(whole(4, seed)) for seed in range(2400)]
    counts = np.unique(np.array(orders), axis=0, return_counts=True)[1]
    assert counts.size == 24
    assert chi_square(counts) < 6


def differences(length: int, apart: int, orders: int) -> np.ndarray:
    """Histogram of the differences between elements that are this far apart."""
    found = []
    for seed in range(orders):
        order = network(length, seed).at(np.arange(length, dtype=np.uint64)).astype(np.int64)
        found.append((order[apart:] - order[:-apart]) % length)
    return np.histogram(np.concatenate(found), bins=100, range=(0, length))[0]


def test_neighbours_and_elements_a_digit_apart_are_not_related() -> None:
    for apart in (1, 2, Permutation(5000, 0)._right):
        counts = differences(5000, apart, 10)
        assert chi_square(counts[1:]) < 6, apart  # the first has no difference 0


def test_the_statistics_would_see_too_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permutation, "ROUNDS", 3)
    assert chi_square(differences(5000, Permutation(5000, 0)._right, 10)[1:]) > 6


def test_what_lies_outside_is_an_index_error() -> None:
    for length in (10, TABLE_LENGTH + 1):
        order = Permutation(length, 0)
        assert order[-1] == order[length - 1]
        with pytest.raises(IndexError, match=f"position {length} of a permutation of {length}"):
            order[length]
        with pytest.raises(IndexError):
            order[-length - 1]
        with pytest.raises(IndexError):
            order.block(0, length + 1)
    with pytest.raises(ValueError, match="between 0 and"):
        Permutation(-1, 0)
    with pytest.raises(ValueError, match="between 0 and"):
        Permutation(MOST + 1, 0)


def test_an_empty_order() -> None:
    assert len(Permutation(0, 0)) == 0
    assert whole(0, 0) == []
