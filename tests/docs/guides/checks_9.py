"""Checks 9xx: errors of stoker's own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import stoker
from stoker.errors import CannotShare, Interrupted, LoaderClosed, SharedReadOnly
from tests.docs.guides.guide import Names, Steps, guide, raises


@guide("docs/checks/STK902.md")
def loader_closed(names: Names) -> Steps:
    names["loader"] = stoker.DataLoader(names["dataset"], num_workers=1)
    with raises(LoaderClosed):
        yield


@guide("docs/checks/STK903.md")
def interrupted(names: Names) -> Steps:
    """Ctrl-C in the middle of the planning: here while the sampler is asked."""

    def order() -> Iterator[int]:
        yield 0
        os.kill(os.getpid(), signal.SIGINT)
        yield 2

    class Order:
        def __iter__(self) -> Iterator[int]:
            return order()

    loader = stoker.DataLoader(names["dataset"], sampler=Order(), num_workers=1, prefetch_factor=1)
    names["iterator"] = iter(loader)
    with raises(Interrupted):
        yield
    loader.close()


@guide("docs/checks/STK904.md")
def read_only(names: Names) -> Steps:
    names["names"] = ["a", "b"] * 10
    with raises(SharedReadOnly):
        yield


@guide("docs/checks/STK905.md")
def cannot_share(names: Names) -> Steps:
    Path("a").touch()
    Path("b").touch()
    with raises(CannotShare, "list[0]['reader'] (TextIOWrapper) cannot be shared"):
        yield


@guide("docs/checks/STK909.md")
def bad_state(names: Names) -> Steps:
    names["loader"] = stoker.DataLoader(names["dataset"], batch_size=8)
    names["checkpoint"] = {"model": names["model"].state_dict(), "loader": names["loader"].state_dict()}
    with raises(ValueError, "this is no state of a stoker loader"):
        yield
    yield
