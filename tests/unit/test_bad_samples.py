"""Bad samples: which are left out or replaced, which are reported, and the order in which rows are fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from stoker._runtime.protocol.status_page import NO_ROW
from stoker._runtime.protocol.worker_spec import BadSampleMode, BatchOrder
from stoker._runtime.worker.bad_samples import TOGETHER, BadSample, BadSampleFilter, good_samples, key_of
from stoker._runtime.worker.fetch import Fetcher
from stoker.errors import NoGoodSample


class Rows:
    """Sample ``n`` is ``10 * n``, but negative indices raise, and those of ``none`` are None."""

    def __init__(self, none: Sequence[int] = (), *, odd: bool = False) -> None:
        self.none = none
        self.asked: list[Any] = []
        self.odd = odd

    def __getitem__(self, index: int) -> int | None:
        self.asked.append(index)
        if index < 0:
            raise ValueError(f"no row {index}")
        return None if index in self.none else 10 * index

    def __getitems__(self, indices: list[int]) -> list[int | None]:
        self.asked.append(tuple(indices))
        found = [None if index in self.none else 10 * index for index in indices if index >= 0]
        return found[1:] if self.odd and len(indices) > 1 else found


class Bench:
    """A sifter with its surroundings written down."""

    def __init__(self, mode: BadSampleMode, dataset: Rows, *, together: bool = False) -> None:
        self.dataset = dataset
        self.before: list[tuple[int, int]] = []
        self.reseeded = 0
        getitems = dataset.__getitems__ if together else None
        self.sifter = BadSampleFilter(mode, Fetcher(dataset).bind, getitems, self._before, self._reseed)

    def rows(self, indices: list[int], first: int = 0, **known: Any) -> list[Any]:
        order = BatchOrder(1, 0, 0, 0, 0, 1, 0, len(indices), len(indices), 7, 0, 0, indices, **known)
        return self.sifter.rows(order, indices, first)

    def bad(self) -> list[tuple[Any, int, str]]:
        return [(each.index, each.row, each.kind) for each in self.sifter.bad]

    def _before(self, order: BatchOrder, row: int, at: int, index: Any) -> None:
        self.before.append((row, at))

    def _reseed(self, order: BatchOrder) -> None:
        self.reseeded += 1


def test_bad_samples_are_left_out() -> None:
    bench = Bench("skip", Rows(none=[2]))
    assert bench.rows([1, -1, 2, 3], first=16) == [10, 30]
    assert bench.sifter.bad == [
        BadSample(-1, 17, "error", "ValueError: no row -1"),
        BadSample(2, 18, "none", "is None"),
    ]
    assert bench.before == [(16, 16), (17, 17), (18, 18), (19, 19)], "the status page is exact"


def test_nothing_may_be_left() -> None:
    assert Bench("skip", Rows()).rows([-1, -2]) == []


def test_the_next_good_one_of_the_range_takes_the_place() -> None:
    bench = Bench("replace", Rows())
    assert bench.rows([-1, 1, 2, -2], spares=(9,)) == [10, 10, 20, 10], "after the last comes the first"
    assert bench.bad() == [(-1, 0, "error"), (-2, 3, "error")]
    assert bench.before[4:] == [(0, NO_ROW), (3, NO_ROW)]
    assert bench.dataset.asked == [-1, 1, 2, -2, 1, 1], "it is fetched anew"


def test_spares_take_the_place_when_the_range_has_no_good_one() -> None:
    bench = Bench("replace", Rows(none=[4]))
    assert bench.rows([-1, -2], spares=(-7, 4, 5)) == [50, 50]
    assert bench.bad() == [
        (-1, 0, "error"), (-2, 1, "error"), (-7, 0, "error"), (4, 0, "none"), (-7, 1, "error"), (4, 1, "none"),
    ]  # fmt: skip
    assert [at for _, at in bench.before[2:5]] == [-3, -4, -5], (
        "which of the spares it is can be told after a death"
    )


def test_a_spare_that_kills_is_passed_over() -> None:
    bench = Bench("replace", Rows())
    assert bench.rows([-1], spares=(4, 5, 6), excluded=(-3, -5)) == [50]
    assert bench.dataset.asked == [-1, 5]


def test_without_any_good_sample_the_error_names_the_indices() -> None:
    with pytest.raises(NoGoodSample, match=r"(?s)index -1: ValueError: no row -1.*index -8: ValueError"):
        Bench("replace", Rows()).rows([-1], spares=(-8,))


def test_excluded_rows_are_not_fetched() -> None:
    bench = Bench("skip", Rows())
    assert bench.rows([1, 2, 3], first=4, excluded=(5,)) == [10, 30]
    assert bench.sifter.bad == [BadSample(2, 5, "killed", "killed every worker that fetched it")]
    assert bench.dataset.asked == [1, 3]
    assert Bench("replace", Rows()).rows([1, 2, 3], first=4, excluded=(5, 6)) == [10, 10, 10]


def test_rows_are_fetched_together_where_the_dataset_can() -> None:
    bench = Bench("skip", Rows(none=[2]), together=True)
    assert bench.rows([1, 2, 3]) == [10, 30]
    assert bench.bad() == [(2, 1, "none")]
    assert bench.before == [(0, TOGETHER)]
    assert bench.dataset.asked == [(1, 2, 3)]
    assert bench.reseeded == 0
    replaced = Bench("replace", Rows(none=[2]), together=True)
    assert replaced.rows([1, 2, 3]) == [10, 30, 30]
    assert replaced.dataset.asked == [(1, 2, 3), (3,)]


def test_one_by_one_when_fetching_together_raises() -> None:
    bench = Bench("skip", Rows(), together=True)
    bench.sifter._getitems = _strict(bench.dataset)
    assert bench.rows([1, -1, 3]) == [10, 30]
    assert bench.bad() == [(-1, 1, "error")]
    assert bench.before == [(0, TOGETHER), (0, 0), (1, 1), (2, 2)]
    assert bench.reseeded == 1, "from where the range began"


def test_one_by_one_when_fetching_together_gives_too_few() -> None:
    bench = Bench("skip", Rows(odd=True), together=True)
    assert bench.rows([1, 2, 3]) == [10, 20, 30]
    assert bench.dataset.asked == [(1, 2, 3), (1,), (2,), (3,)]


def _strict(dataset: Rows) -> Callable[[list[int]], list[int | None]]:
    def getitems(indices: list[int]) -> list[int | None]:
        if min(indices) < 0:
            raise KeyError(indices)
        return dataset.__getitems__(indices)

    return getitems


@pytest.mark.parametrize("whole", [{"x": [1, 2]}, torch.arange(2), None], ids=["dict", "tensor", "None"])
def test_a_batch_of_the_dataset_s_own_kind_is_left_as_it_is(whole: Any) -> None:
    bench = Bench("skip", Rows(), together=True)
    bench.sifter._getitems = lambda indices: whole
    assert bench.rows([1, 2]) is whole
    assert bench.bad() == []


@pytest.mark.parametrize(
    ("excluded", "left"), [((TOGETHER,), [10, 20, 30]), ((1,), [10, 30]), ((TOGETHER, 1), [10, 30])]
)
def test_rows_that_killed_together_are_fetched_one_by_one(excluded: tuple[int, ...], left: list[int]) -> None:
    bench = Bench("skip", Rows(), together=True)
    assert bench.rows([1, 2, 3], excluded=excluded) == left
    assert (1, 2, 3) not in bench.dataset.asked
    assert all(row == at for row, at in bench.before)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_of_a_sample_goes_through(error: type[BaseException]) -> None:
    class Ending(Rows):
        def __getitem__(self, index: int) -> int:
            raise error

        def __getitems__(self, indices: list[int]) -> list[int | None]:
            raise error

    for together in (False, True):
        with pytest.raises(error):
            Bench("skip", Ending(), together=together).rows([1])


def test_an_error_without_a_text_is_named_by_its_type() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    class Muted(Rows):
        def __getitem__(self, index: int) -> int:
            raise Mute if index else ValueError("x" * 1000)

    bench = Bench("skip", Muted())
    assert bench.rows([1, 0]) == []
    mute, long = (each.reason for each in bench.sifter.bad)
    assert mute == "Mute"
    assert len(long) == 300
    assert long.startswith("ValueError: xxx")
    assert long.endswith("...")


class Source:
    """An iterator that goes on after it raised. Exceptions among ``values`` are raised, the rest is given."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = list(values)
        self.seen = -1

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self.values:
            raise StopIteration
        value = self.values.pop(0)
        if isinstance(value, BaseException):
            raise value
        return value

    def count(self) -> int:
        self.seen += 1
        return self.seen


def test_a_stream_goes_on_behind_bad_samples() -> None:
    source = Source([1, ValueError("torn"), None, 2, 3])
    bad: list[BadSample] = []
    assert good_samples(source, 2, bad, source.count) == [1, 2]
    assert bad == [BadSample(1, 1, "error", "ValueError: torn"), BadSample(2, 1, "none", "is None")]
    assert good_samples(source, 2, bad, source.count) == [3]
    assert len(bad) == 2


def test_a_generator_cannot_go_on_and_its_error_says_so() -> None:
    """Row 18: a generator dies after raising."""

    def stream() -> Iterator[int]:
        yield 1
        raise ValueError("torn")

    source = Source([])
    with pytest.raises(ValueError, match="torn") as caught:
        good_samples(stream(), 4, [], source.count)
    assert "sample 1 of the stream came out of a generator" in caught.value.__notes__[0]


@pytest.mark.parametrize("last", [ValueError("torn"), None], ids=["error", "none"])
def test_a_stream_that_ends_with_an_error_is_reported(last: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Row 18: a generator inside of another iterator ends unseen."""
    source = Source([1, ValueError("torn"), 2, last])
    assert good_samples(source, 5, [], source.count) == [1, 2]
    said = [record.getMessage() for record in caplog.records]
    if last is None:
        assert said == []
    else:
        assert [text.partition(":")[0] for text in said] == [
            "the stream ended right after its sample 3 raised"
        ]


def test_a_stream_of_errors_ends_in_one() -> None:
    source = Source([ValueError(number) for number in range(2000)])
    bad: list[BadSample] = []
    with pytest.raises(ValueError, match="999") as caught:
        good_samples(source, 1, bad, source.count)
    assert "1000 samples of the stream were bad" in caught.value.__notes__[0]
    assert len(bad) == 1000


def test_a_stream_of_nothing_ends_in_an_error() -> None:
    source = Source([None] * 999 + [5] + [None] * 1000)
    assert good_samples(source, 1, [], source.count) == [5]
    with pytest.raises(NoGoodSample, match=r"1000 samples .* number 1999, is None"):
        good_samples(source, 1, [], source.count)


@pytest.mark.parametrize(
    "index", [3, np.int64(3), torch.tensor(3), np.uint8(3)], ids=lambda index: type(index).__name__
)
def test_integers_of_all_kinds_are_one_key(index: Any) -> None:
    assert type(key_of(index)) is int
    assert key_of(index) == 3


def test_other_indices_are_keys_by_value_or_by_text() -> None:
    assert key_of("a") == "a"
    assert key_of((1, "a")) == (1, "a")
    assert key_of([1, 2]) == "[1, 2]"
    assert key_of(torch.tensor([1, 2])) == "tensor([1, 2])"
