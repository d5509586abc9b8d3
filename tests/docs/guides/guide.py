"""A page's guide: a generator that stands at its n-th ``yield`` while the n-th block of Python runs.

    @guide("docs/checks/STK902.md")
    def loader_closed(names):
        names["loader"] = stoker.DataLoader(range(8))       # before the block
        with raises(LoaderClosed):                          # what the block has to raise
            yield
        assert ...                                          # after it

A guide has as many ``yield``s as its page has blocks of Python. It runs in the page's process: see ``tests.docs.play``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from torch.utils.data import DataLoader

import tests.docs.guides as folder

Names: TypeAlias = dict[str, Any]
Steps: TypeAlias = Generator[None, None, None]
Guide: TypeAlias = Callable[[Names], Steps]

GUIDES: dict[str, Guide] = {}
"""By page. Complete when ``guides()`` has been called."""


def guide(page: str) -> Callable[[Guide], Guide]:
    """Take a function up as the guide of this page."""

    def take(function: Guide) -> Guide:
        assert page not in GUIDES, f"{page} has a guide"
        GUIDES[page] = function
        return function

    return take


def guides() -> dict[str, Guide]:
    """All of them."""
    for each in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{folder.__name__}.{each.name}")
    return GUIDES


@contextmanager
def raises(kind: type[BaseException] | tuple[type[BaseException], ...], text: str = "") -> Iterator[None]:
    """As pytest has it, without the time that its import takes; ``text`` is in the message."""
    raised: BaseException | None = None
    try:
        yield
    except kind as error:
        raised = error
    assert raised is not None, f"{kind} was not raised"
    assert text in f"{type(raised).__name__}: {raised}", f"{text!r} is not in {raised!r}"


def in_workers(dataset: Any, workers: int = 2, **given: Any) -> list[Any]:
    """All batches of torch's loader with so many forked workers."""
    return list(DataLoader(dataset, num_workers=workers, **given))


def few(stop: int) -> range:
    """Stands for ``range`` where a page counts ninety epochs: two show as much."""
    return range(min(stop, 2))
