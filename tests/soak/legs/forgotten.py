"""Iterators that were dropped half read are collected in the middle of the engine's code, at every place in turn.

A garbage collection runs wherever something is allocated. Then the finalizers of a forgotten iterator end its pool, on the same
thread and in the middle of any method, also one that holds a lock. Nothing may wait for itself, and the epoch that is being read
must not notice. A fault is one such collection: the last reference goes at a chosen place, while another iterator is read.
"""

from __future__ import annotations

import gc
import sys
from random import Random
from typing import Any

from tests.soak.account import Account
from tests.soak.accounting import accounted, check_receipt
from tests.soak.interrupter import Happening, Rehearsal
from tests.soak.rows import Noisy, compare, loader_of, options_for, read

ROWS, EPOCHS = 23, 3
PER_SCENARIO = {"inline": 60, "thread": 40, "fork": 10}
"""Collections in a scenario: fewer where workers have to be started anew for each."""


def play(seed: int) -> Account:
    """Play the scenario of this seed, on the main thread."""
    account = Account(seed)
    dice = Random(seed)
    account.where = where = dice.choices(("inline", "thread", "fork"), (5, 3, 1))[0]
    options = options_for(where, dice, workers=dice.choice((1, 2)))
    account.title = f"{where} {options}"
    hook = sys.unraisablehook

    def swallowed(unraisable: Any) -> None:
        account.find("raised", f"in a finalizer: {unraisable.exc_value!r} in {unraisable.object!r}")

    with accounted(account) as folder:
        sys.unraisablehook = swallowed
        try:
            _play(account, dice, options, folder, seed)
        finally:
            sys.unraisablehook = hook
    return account


def _play(account: Account, dice: Random, options: dict[str, Any], folder: Any, seed: int) -> None:
    dataset = Noisy(ROWS, noisy=account.where != "thread")
    with loader_of(dataset, seed) as reference, loader_of(dataset, seed, **options) as loader:
        expected = [read(reference, seed + epoch) for epoch in range(EPOCHS)]
        read(loader, seed)
        with Rehearsal() as seen:
            read(loader, seed)
            loader.stats()
        places = sorted(seen.places.items(), key=str)
        first = dice.randrange(len(places))
        for number in range(PER_SCENARIO[account.where]):
            place, count = places[(first + number) % len(places)]
            forgotten = _half_read(dice.choice((loader, reference)), seed)
            epoch = dice.randrange(EPOCHS)

            def collect(last: list[Any] = forgotten) -> None:
                last.clear()
                gc.collect()  # it is in a cycle with its pool

            with Happening(place, dice.randint(1, count), collect) as collection:
                found = read(loader, seed + epoch)
                loader.stats()
            account.faults["iterator collected"] += collection.done
            told = f"collected at {place.code.co_qualname}+{place.offset}"
            if account.findings or not compare(account, found, expected[epoch], told):
                return
        read(loader, seed), read(reference, seed)
        check_receipt(account, loader.receipt(), reference.receipt(), folder)


def _half_read(loader: Any, seed: int) -> list[Any]:
    """The only reference to an iterator that has given a batch."""
    loader.generator.manual_seed(seed)
    iterator = iter(loader)
    next(iterator)
    return [iterator]
