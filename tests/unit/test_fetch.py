"""One way to the samples: a fetcher sees every sample that a batch maker fetches, whichever way it is fetched."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker._runtime.worker.batch_maker import BatchMaker
from stoker._runtime.worker.fetch import Fetcher
from tests.unit.makers import order, spec


class Rows:
    """Sample ``n`` is ``10 * n``; negative indices raise."""

    def __getitem__(self, index: int) -> int:
        if index < 0:
            raise ValueError(f"no row {index}")
        return 10 * index


class Batches(Rows):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


class Counting(Fetcher):
    """Writes down every index that is fetched, as a sample cache would see it."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset)
        self.seen: list[int] = []

    def bind(self) -> Callable[[Any], Any]:
        fetch = super().bind()

        def counted(index: Any) -> Any:
            self.seen.append(index)
            return fetch(index)

        return counted

    def bind_batched(self) -> Callable[[Any], Any] | None:
        fetch = super().bind_batched()
        if fetch is None:
            return None

        def counted(indices: Any) -> Any:
            self.seen.extend(indices)
            return fetch(indices)

        return counted


def _counted(dataset: Any, **changed: Any) -> tuple[BatchMaker, list[int]]:
    fetcher = Counting(dataset)
    return BatchMaker(spec(dataset, **changed), 0, fetcher=fetcher), fetcher.seen


@pytest.mark.parametrize("rng", ["batch", "sample", "torch"])
def test_rows_of_a_batch(rng: str) -> None:
    maker, seen = _counted(Rows(), rng=rng)
    for _ in range(2):  # slow rows first, then quick ones: they have a loop each
        assert maker.make(order([3, 1, 2]), None) == [30, 10, 20]
    assert seen == [3, 1, 2] * 2


def test_a_single_sample_without_collation() -> None:
    maker, seen = _counted(Rows(), auto_collation=False, collate_fn=lambda sample: sample)
    assert maker.make(order(4), None) == 40
    assert seen == [4]


@pytest.mark.parametrize("mode", ["raise", "skip"])
def test_a_batch_at_once(mode: str) -> None:
    maker, seen = _counted(Batches(), on_bad_sample=mode)
    assert maker.make(order([3, 1, 2]), None) == [30, 10, 20]
    assert seen == [3, 1, 2]


def test_a_part_of_a_batch() -> None:
    maker, seen = _counted(Rows())
    part = order([5, 6], part=1, parts=2, start=2, stop=4, rows=4)
    assert maker.make_part(part, None, 0).raw == [50, 60]
    assert seen == [5, 6]


def test_rows_fetched_by_threads() -> None:
    maker, seen = _counted(Rows(), threads=2)
    try:
        assert maker.make(order([3, 1, 2, 4]), None) == [30, 10, 20, 40]
    finally:
        maker.close()
    assert sorted(seen) == [1, 2, 3, 4]


@pytest.mark.parametrize("threads", [1, 2])
def test_replacements_of_bad_samples(threads: int) -> None:
    maker, seen = _counted(Rows(), on_bad_sample="replace", threads=threads)
    try:
        assert maker.make(order([1, -1, 3]), None).contents == [10, 30, 30]
    finally:
        maker.close()
    assert sorted(seen) == [-1, 1, 3, 3]


def test_replacements_of_a_batch_at_once() -> None:
    maker, seen = _counted(Batches(), on_bad_sample="replace")
    assert maker.make(order([1, -1, 3]), None).contents == [10, 30, 30]
    assert seen == [1, -1, 3, 1, -1, 3, 3], "the whole batch, then one by one, then the replacement"


class Static:
    """Python calls a static ``__getitem__`` without the instance."""

    @staticmethod
    def __getitem__(index: int) -> int:
        return index


class Inherited(list[int]):
    pass


@pytest.mark.parametrize("dataset", [[0, 1, 2], (0, 1, 2), {2: 2}, Static(), Inherited([0, 1, 2])])
def test_every_kind_of_getitem(dataset: Any) -> None:
    assert Fetcher(dataset).bind()(2) == dataset[2] == 2


def test_the_type_decides_and_not_the_instance() -> None:
    dataset = Rows()
    dataset.__getitem__ = lambda index: -1  # type: ignore[method-assign]
    assert Fetcher(dataset).bind()(2) == dataset[2] == 20


def test_a_method_replaced_between_two_batches_is_used() -> None:
    class Local(Rows):
        pass

    maker, _ = _counted(Local())
    assert maker.make(order([1]), None) == [10]
    Local.__getitem__ = lambda self, index: index  # type: ignore[method-assign]
    assert maker.make(order([1]), None) == [1]


def test_no_subscript_is_an_error_of_the_fetch() -> None:
    fetch = Fetcher(object()).bind()
    with pytest.raises(TypeError, match="not subscriptable"):
        fetch(0)


RUNTIME = Path(stoker.__file__).parent / "_runtime"
ELSEWHERE = {
    "plan/selection.py": "asks whether a subset of indices can be indexed",
    "transport/rebuild.py": "looks up numpy's dtype by its number",
    "worker/rng/dataset_generators.py": "reads items of plain lists, tuples and dicts",
}
"""Files besides worker/fetch.py that name ``__getitem__``, and what for. None of them fetches a sample."""

DATASETS = "cache/"
"""What is a dataset itself, and so fetches from the one inside. Every executor still gets it through worker/fetch.py."""


def _accesses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of all code that reads items by a special method, or from something that is called a dataset."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in (
            "__getitem__",
            "__getitems__",
            "getitem",
            "itemgetter",
        ):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and node.value in ("__getitem__", "__getitems__"):
            yield node.lineno, node.value
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name | ast.Attribute):
            name = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if name.endswith("dataset"):
                yield node.lineno, f"{name}[...]"


def test_samples_are_fetched_in_one_module_only() -> None:
    found: dict[str, list[tuple[int, str]]] = {}
    for path in RUNTIME.rglob("*.py"):
        accesses = list(_accesses(ast.parse(path.read_text())))
        if accesses and not path.relative_to(RUNTIME).as_posix().startswith(DATASETS):
            found[path.relative_to(RUNTIME).as_posix()] = accesses
    assert found.keys() == {"worker/fetch.py", *ELSEWHERE}, found
    assert not any(text.endswith("[...]") for accesses in found.values() for _, text in accesses), found


@pytest.mark.parametrize(
    "source",
    [
        "sample = self._dataset[index]",
        "batch = spec.dataset[3]",
        "samples = dataset.__getitems__([1, 2])",
        "fetch = getattr(dataset, '__getitem__')",
        "map(operator.getitem, repeat(rows), indices)",
    ],
)
def test_a_second_way_to_a_sample_would_be_noticed(source: str) -> None:
    assert list(_accesses(ast.parse(source)))
