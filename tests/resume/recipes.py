"""Strategies: random recipes, ways and places where a run is cut."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.resume.orders import BATCH_ORDERS, ORDERS
from tests.resume.runs import Leg, Recipe, Way

GLOBAL = ("augmented", "together", "ragged", "keyed", "stored")
"""Datasets for inline and process loaders."""
KEYED = ("keyed",)
"""Datasets whose draws no other thread can disturb."""


@st.composite
def recipes(draw: st.DrawFn, data: tuple[str, ...] = GLOBAL, orders: tuple[str, ...] = ORDERS) -> Recipe:
    """Ragged rows need a batch, and torch refuses ``drop_last`` without one."""
    kind = draw(st.sampled_from(data))
    order = draw(st.sampled_from(orders))
    batched = order in BATCH_ORDERS or kind == "ragged" or draw(st.integers(0, 7)) > 0
    return Recipe(
        data=kind,
        length=draw(st.integers(3, 70)),
        order=order,
        batch_size=draw(st.integers(1, 40)) if batched else None,
        drop_last=batched and draw(st.booleans()),
        rng=draw(st.sampled_from(["batch", "sample"])),
        seed=draw(st.integers(0, 99)),
    )


def inline_ways() -> st.SearchStrategy[Way]:
    return st.builds(Way, workers=st.just(0))


def thread_ways() -> st.SearchStrategy[Way]:
    return st.builds(
        Way,
        workers=st.integers(1, 3),
        executor=st.just("thread"),
        in_order=st.sampled_from([True, True, False]),
    )


@st.composite
def process_ways(draw: st.DrawFn, length: int, *, deadly: bool = True) -> Way:
    """Forked workers; at most two deaths, which is what a batch bears."""
    deaths = draw(st.lists(st.integers(0, length - 1), max_size=2, unique=True)) if deadly else []
    return Way(
        workers=draw(st.integers(1, 3)),
        method="fork",
        in_order=draw(st.sampled_from([True, True, False])),
        split=draw(st.sampled_from([None, True, False])),
        deaths=tuple(deaths),
    )


@st.composite
def legs(draw: st.DrawFn, ways: st.SearchStrategy[Way], count: int) -> list[Leg]:
    """Two to four legs over a run of ``count`` batches. A cut may lie at the very start, at the end, or twice in one place."""
    cuts = sorted(draw(st.lists(st.integers(0, count), min_size=1, max_size=3)))
    sizes = [end - start for start, end in zip([0, *cuts], cuts, strict=False)]
    return [*(Leg(draw(ways), size, draw(st.booleans())) for size in sizes), Leg(draw(ways))]
