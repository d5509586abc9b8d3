"""A cache inside a cache: found by path in real datasets, and told by the check. Side by side they are fine."""

from __future__ import annotations

from typing import Any

from torch.utils.data import ConcatDataset, Dataset, Subset

from stoker._tools.doctor.checks.memory import stk608_nested_caches as stk608
from stoker._tools.doctor.facts.target import FoundCache
from stoker._tools.doctor.instruments.caches import caches
from tests.unit.doctor.given import target


class Pictures(Dataset[Any]):
    def __init__(self, inner: Any = None, loader: Any = None) -> None:
        self.dataset, self.loader = inner, loader

    def __len__(self) -> int:
        return 1

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("no code of the dataset's runs")


def made(module: str, name: str) -> type[Pictures]:
    """A class of that name, as a library would have it."""
    return type(name, (Pictures,), {"__module__": module})


CachedDataset = made("stoker._runtime.cache.dataset", "CachedDataset")
CachedFunction = made("stoker._runtime.cache.function", "CachedFunction")
CacheDataset = made("monai.data.dataset", "CacheDataset")


def test_a_cached_decoder_in_a_cached_dataset_is_found() -> None:
    assert caches(CachedDataset(Pictures(loader=CachedFunction()))) == (
        FoundCache("dataset", "stoker.cache"),
        FoundCache("dataset.dataset.loader", "stoker.cached", "dataset"),
    )


def test_a_dataset_that_was_wrapped_twice_is_found_through_others() -> None:
    found = caches(CachedDataset(Subset(CachedDataset(Pictures()), [0])))
    assert [(each.path, each.inside) for each in found] == [
        ("dataset", None),
        ("dataset.dataset.dataset", "dataset"),
    ]


def test_a_librarys_cache_counts_and_so_does_a_class_derived_from_it() -> None:
    derived = type("Mine", (CacheDataset,), {"__module__": "train"})
    found = caches(CachedDataset(derived()))
    assert found[1] == FoundCache("dataset.dataset", "monai's CacheDataset", "dataset")


def test_caches_side_by_side_are_not_inside_each_other() -> None:
    both: Any = ConcatDataset(
        [Pictures(loader=CachedFunction()), Pictures(loader=CachedFunction())],
    )
    assert [each.inside for each in caches(both)] == [None, None]


def test_a_decorated_method_is_seen_on_its_class() -> None:
    class Decorated(Pictures):
        decode = CachedFunction()

    found = caches(CachedDataset(Decorated()))
    assert found[1].path == "dataset.dataset.decode"


def test_a_class_of_that_name_of_anybody_elses_is_no_cache() -> None:
    assert caches(made("train", "CacheDataset")()) == ()


def test_the_finding_names_both_and_what_to_remove() -> None:
    nested = target(
        caches=(
            FoundCache("dataset", "stoker.cache"),
            FoundCache("dataset.loader", "stoker.cached", "dataset"),
        )
    )
    (found,) = stk608.examine(nested)
    assert (found.code, found.severity, found.where) == ("STK608", "moderate", "dataset.loader")
    assert found.evidence.startswith("dataset.loader (stoker.cached) lies inside dataset (stoker.cache): ")
    assert (
        found.advice
        == "Remove stoker.cached from dataset.loader, or stoker.cache around it: one of the two is enough."
    )


def test_more_of_them_are_counted() -> None:
    inner = [FoundCache(f"dataset.parts[{place}]", "monai's CacheDataset", "dataset") for place in range(3)]
    (found,) = stk608.examine(target(caches=(FoundCache("dataset", "stoker.cache"), *inner)))
    assert "and 2 others like it" in found.evidence
    assert found.numbers == {"caches": 4, "nested": 3}


def test_one_cache_and_caches_side_by_side_are_healthy() -> None:
    assert not list(stk608.examine(target(caches=(FoundCache("dataset", "stoker.cache"),))))
    two = (FoundCache("dataset.a", "stoker.cached"), FoundCache("dataset.b", "stoker.cached"))
    assert not list(stk608.examine(target(caches=two)))
    assert not list(stk608.examine(target()))
