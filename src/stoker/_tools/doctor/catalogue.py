"""All checks, in the order of their codes."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from functools import cache
from importlib import import_module

from stoker._tools.doctor import checks
from stoker._tools.doctor.check import Check


@cache
def catalogue() -> tuple[Check, ...]:
    """Every check there is. Imports them all, which takes about 30 ms; none of them imports torch."""
    found = [
        each.name for each in pkgutil.walk_packages(checks.__path__, f"{checks.__name__}.") if not each.ispkg
    ]
    return tuple(
        import_module(name).CHECK for name in sorted(found, key=lambda name: name.rpartition(".")[2])
    )


def check_of(code: str) -> Check | None:
    """The check with this code or name: "STK201", "stk201", "small-shm"."""
    wanted = code.strip().lower().replace("_", "-")
    return next((each for each in catalogue() if wanted in (each.code.lower(), each.name)), None)


def selected(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> tuple[Check, ...]:
    """Checks whose code begins with one of ``select`` ("STK2" is all of the machine's; nothing: all), less those of ``ignore``.

    Names of checks may stand for codes. Raises ValueError for what selects nothing.
    """
    chosen, left_out = _prefixes(select), _prefixes(ignore)
    return tuple(
        each
        for each in catalogue()
        if (not chosen or each.code.startswith(chosen)) and not (left_out and each.code.startswith(left_out))
    )


def _prefixes(words: Iterable[str]) -> tuple[str, ...]:
    found = []
    for word in words:
        named = check_of(word)
        code = named.code if named else word.strip().upper()
        if not any(each.code.startswith(code) for each in catalogue()) or not code:
            raise ValueError(f"no check has the code or name {word!r}: stoker doctor --list shows them")
        found.append(code)
    return tuple(found)
