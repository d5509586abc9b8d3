"""What is scored: a target, what the doctor has to say of it, and what it may say besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

KEEP: dict[str, Any] = {"num_workers": 2, "persistent_workers": True}
"""Arguments that most of the loaders have."""


class Case(NamedTuple):
    """``expected`` are codes that must be found. ``also`` are codes that are true of it as well, and count neither way."""

    name: str
    target: str
    expected: frozenset[str]
    also: frozenset[str]


class Cases(list[Case]):
    """Collects the functions of a module that make loaders."""

    def __call__(self, *expected: str, also: tuple[str, ...] = ()) -> Callable[[Any], Any]:
        """Add the decorated function, whose docstring's first line is the description."""

        def add(function: Any) -> Any:
            target = f"{function.__module__}:{function.__name__}"
            self.append(Case(function.__name__, target, frozenset(expected), frozenset(also)))
            return function

        return add
