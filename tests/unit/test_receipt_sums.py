"""The sums of a receipt: hashes that can be undone, sums that add up over ranks and legs, and samples read back from a sketch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker._receipt import receipt_file, receipt_writer, sketch
from stoker._receipt.data_receipt import DataReceipt, ReceiptFacts, coarser
from stoker._receipt.index_keys import index_keys
from stoker._receipt.loader_receipts import LoaderReceipts
from stoker._receipt.mixing import MASK, batch_hashes, keyed, mix, total, unkeyed, unmix_one, words
from stoker._receipt.receipt_writer import ReceiptWriter

BATCHES = st.lists(st.lists(st.integers(0, 10_000), max_size=6), min_size=1, max_size=40)


def opened(first: int = 0, *, batched: bool = True, streams: bool = False) -> ReceiptWriter:
    receipt = DataReceipt(id=1, facts=ReceiptFacts(), epoch=0, seed=0, sampler_epoch=None, first=first)
    return ReceiptWriter(receipt, ReceiptFacts, batched=batched, streams=streams)


def receipt_of(batches: list[list[int]], first: int = 0) -> DataReceipt:
    writer = opened(first)
    for number, indices in enumerate(batches, first):
        writer.note(number, indices)
    return writer.receipt()


@given(st.integers(0, MASK))
def test_hashes_are_undone(value):
    assert unmix_one(int(mix(np.array([value], np.uint64))[0])) == value


@given(st.lists(st.integers(0, MASK), min_size=1, max_size=50))
def test_entries_give_their_hashes_back(values):
    hashes, numbers = np.array(values, np.uint64), np.arange(len(values), dtype=np.uint64)
    assert unkeyed(keyed(hashes, numbers), numbers).tolist() == values


def test_a_batch_hash_depends_on_rows_and_their_order():
    def one(indices):
        return int(batch_hashes(mix(words(indices)), words([len(indices)]))[0])

    found = [one(each) for each in ([1, 2, 3], [1, 3, 2], [1, 2], [1, 2, 3, 3], [], [0])]
    assert len(set(found)) == len(found)
    assert 0 not in found


@given(BATCHES, st.data())
def test_legs_add_up_to_the_epoch(batches, data):
    cut = data.draw(st.integers(0, len(batches)))
    whole, one, two = receipt_of(batches), receipt_of(batches[:cut]), receipt_of(batches[cut:], cut)
    for name in ("digest", "samples_digest"):
        assert (getattr(one, name) + getattr(two, name)) & MASK == getattr(whole, name)
    assert one.samples + two.samples == whole.samples
    assert np.concatenate([one.entries, two.entries]).tolist() == whole.entries.tolist()
    assert ((one.sketch + two.sketch) == whole.sketch).all()


@given(BATCHES, st.integers(1, 5))
def test_ranks_add_up_whoever_gets_which_sample(batches, world):
    flat = [index for batch in batches for index in batch]
    ranks = [receipt_of([flat[rank::world]]) for rank in range(world)]
    whole = receipt_of(batches)
    assert sum(each.samples_digest for each in ranks) & MASK == whole.samples_digest
    assert (np.add.reduce([each.sketch for each in ranks]) == whole.sketch).all()


@given(BATCHES, st.integers(0, 3), st.integers(0, 3))
def test_entries_of_a_coarser_grain_are_sums(batches, first, shift):
    fine = receipt_of(batches, first)
    grain = 1 << shift
    numbers = np.arange(first, first + len(batches)) // grain - first // grain
    wanted = np.zeros(numbers[-1] + 1, np.uint64)
    np.add.at(wanted, numbers, fine.entries)
    assert coarser(fine.entries, first, 1, grain).tolist() == wanted.tolist()


def test_an_endless_epoch_keeps_a_bounded_number_of_entries(monkeypatch):
    monkeypatch.setattr(receipt_writer, "MOST_ENTRIES", 16)
    batches = [[number, number + 1] for number in range(1000)]
    receipt = receipt_of(batches, 3)
    monkeypatch.undo()
    assert receipt.grain == 64
    assert len(receipt.entries) <= 16
    assert receipt.entries.tolist() == coarser(receipt_of(batches, 3).entries, 3, 1, 64).tolist()
    assert total(receipt.entries) == receipt.digest


def test_batches_out_of_order_have_the_same_entries_and_another_order():
    writer = opened()
    for number in (1, 0, 3, 2):
        writer.note(number, [number])
    found, plain = writer.receipt(), receipt_of([[0], [1], [2], [3]])
    assert found.entries.tolist() == plain.entries.tolist()
    assert found.digest == plain.digest
    assert found.order != plain.order == plain.digest


@given(
    st.integers(1, 3000),
    st.lists(st.integers(0, 2999), max_size=60),
    st.sets(st.integers(0, 2999), max_size=60),
)
def test_the_sketch_names_missing_and_repeated_samples(length, extra, missing):
    extra = [each for each in extra if each < length]
    missing = {each for each in missing if each < length}
    found = sketch.empty()
    there = [index for index in range(length) if index not in missing] + extra
    if there:
        sketch.add(found, mix(words(there)))
    times: dict[int, int] = {}
    for each, sign in [*((each, 1) for each in extra), *((each, -1) for each in missing)]:
        times[each] = times.get(each, 0) + sign
    wanted = {index: count for index, count in times.items() if count}
    answer = sketch.difference(found, sketch.of_range(length), length)
    if max(map(abs, wanted.values()), default=0) <= 4:
        assert answer.complete
    if answer.complete:
        assert answer.times == wanted


def test_a_sketch_that_differs_by_too_much_says_so():
    answer = sketch.difference(sketch.empty(), sketch.of_range(20_000), 20_000)
    assert not answer.complete


@pytest.mark.parametrize(
    "indices", [(3, 1, 2), np.array([3, 1, 2]), range(3, 0, -1), [np.int64(3), np.int64(1), np.int64(2)]]
)
def test_whole_numbers_count_alike_in_whatever_they_come(indices):
    writer = opened()
    writer.note(0, indices)
    wanted = receipt_of([list(map(int, indices))])
    assert writer.receipt().digest == wanted.digest
    assert writer.receipt().whole


def test_indices_that_are_no_numbers_count_by_their_value():
    def digest(*indices):
        writer = opened()
        writer.note(0, list(indices))
        receipt = writer.receipt()
        assert not receipt.whole
        return receipt.digest

    assert digest("a", "b") == digest("a", "b") != digest("b", "a")
    assert digest((1, "x")) != digest((2, "x"))
    assert digest(1 << 70) != digest(1 << 71)


def test_indices_of_unknown_classes_are_counted_and_that_is_said():
    class Own:
        pass

    keys = index_keys([Own(), 1])
    assert not keys.told
    assert len(keys.keys) == 2


def test_a_sampler_without_batching_gives_single_indices_or_lists():
    writer = opened(batched=False)
    for number, indices in enumerate([5, [6, 7], (8, 9), ("file", 3)]):
        writer.note(number, indices)
    receipt = writer.receipt()
    assert (receipt.batches, receipt.samples) == (4, 6)


def test_a_stream_counts_batches_only():
    writer = opened(streams=True)
    for number in range(3):
        writer.note(number, None)
    receipt = writer.receipt()
    assert (receipt.batches, receipt.samples) == (3, 0)


def test_an_index_that_cannot_be_read_costs_a_part_of_the_receipt_and_nothing_else():
    class Broken:
        def __len__(self):
            return 2

        def __iter__(self):
            raise OSError("gone")

    writer = opened()
    writer.note(0, Broken())
    writer.note(1, [1])
    receipt = writer.receipt()
    assert receipt.missing == "OSError: gone"
    assert (receipt.batches, receipt.samples) == (2, 1)


@given(BATCHES)
def test_sums_without_the_last_batch_are_those_before_it(batches):
    writer = opened()
    before = writer.sums()
    for number, indices in enumerate(batches):
        before = writer.sums()
        writer.note(number, indices)
        assert writer.sums(before_last=True) == before


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_epochs_hashed_behind_the_next_one_have_their_sums(batches):
    receipts, digests, kept = LoaderReceipts(), [], []
    for epoch in range(5):
        writer = opened()
        receipts.begin(writer, loaded=False, text=None, rest=False)
        for number in range(batches):
            writer.note(number, [epoch, number])
        writer.close()
        kept.append(writer)
        digests.append(receipt_of([[epoch, number] for number in range(batches)]).digest)
    unsettled = [each for each in kept if each._earlier is not None]
    assert len(unsettled) <= 1  # a chain of epochs would keep them all
    summaries = receipts.summaries()
    assert [each.digest for each in summaries] == [f"{digest:016x}" for digest in digests][-len(summaries) :]
    receipt = receipts.receipt()
    assert receipt is not None
    assert receipt.previous == digests[-2]


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now_ns = 1

    def __call__(self) -> int:
        return self.now_ns


def filed(path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> ReceiptWriter:
    """A writer with a file."""
    monkeypatch.setattr(receipt_writer, "monotonic_ns", clock)
    writer = opened()
    writer.begin(writer.totals, lambda: path)
    return writer


def batches_in(path: Path) -> int:
    [receipt] = receipt_file.read(path).receipts
    return receipt.batches


def test_a_slow_epoch_is_written_when_it_is_due(tmp_path, monkeypatch):
    path, clock = tmp_path / "a", Clock()
    writer = filed(path, clock, monkeypatch)
    for number in range(3):
        writer.note(number, [number])
    assert not path.exists()
    clock.now_ns += 500_000_000
    writer.note(3, [3])  # may be taken back: it is not in the file yet
    assert batches_in(path) == 3
    writer.note(4, [4])
    assert batches_in(path) == 3
    clock.now_ns += 500_000_000
    writer.note(5, [5])
    assert batches_in(path) == 5
    writer.close()
    assert batches_in(path) == 6


def test_a_long_epoch_is_written_once_a_minute_and_oftener_with_its_states(tmp_path, monkeypatch):
    path, clock = tmp_path / "a", Clock()
    writer = filed(path, clock, monkeypatch)
    writer.note(0, [0])
    clock.now_ns += 3600 * 10**9
    writer.note(1, [1])
    assert batches_in(path) == 1
    clock.now_ns += 59 * 10**9
    writer.note(2, [2])
    assert batches_in(path) == 1
    writer.sums()
    writer.write_when_due(state=True)
    assert batches_in(path) == 3
    writer.note(3, [3])
    writer.sums()
    writer.write_when_due(state=True)  # many frameworks take one at every step
    assert batches_in(path) == 3
    clock.now_ns += 5 * 10**9
    writer.note(4, [4])
    assert batches_in(path) == 4
    writer.close()
