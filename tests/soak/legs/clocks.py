"""The clock on the wall jumps: every reading of ``time.time`` is off by up to hours, forth and back, in the parent and its workers.

The monotonic clock of a system never jumps, and is left alone. A fault is one reading, here in the parent, of a clock that had
jumped since the reading before. Epochs must be as always, records and receipts must be readable, and nothing may wait.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from stoker._record import journal
from tests.soak.account import Account
from tests.soak.accounting import accounted, verified
from tests.soak.rows import EXECUTORS, Noisy, compare, loader_of, options_for, read

EPOCHS = 6
_FAR_S = 10_000.0


@contextmanager
def jumping(dice: Random, account: Account) -> Iterator[None]:
    """Let the clock on the wall jump in the block."""
    real = time.time, time.time_ns

    def jump_ns() -> int:
        account.faults["clock jump"] += 1
        return int(1e9 * dice.uniform(-_FAR_S, _FAR_S))

    patched: Any = time
    patched.time = lambda: real[0]() + jump_ns() / 1e9
    patched.time_ns = lambda: real[1]() + jump_ns()
    try:
        yield
    finally:
        patched.time, patched.time_ns = real


def play(seed: int) -> Account:
    """Play the scenario of this seed."""
    account = Account(seed)
    dice = Random(seed)
    account.where = where = dice.choices(EXECUTORS, (3, 3, 3, 1, 0))[0]
    options = options_for(where, dice)
    account.title = f"{where} {options}"
    with accounted(account) as folder:
        dataset = Noisy(60, noisy=where != "thread")
        with loader_of(dataset, seed) as reference:
            expected = [read(reference, seed + epoch) for epoch in range(EPOCHS)]
        with jumping(dice, account):
            loader = loader_of(dataset, seed, record=str(folder / "run.json"), **options)
            with loader:
                for epoch in range(EPOCHS):
                    if not compare(account, read(loader, seed + epoch), expected[epoch], f"epoch {epoch}"):
                        break
                    loader.state_dict()
            del loader, reference
        if not journal.read(folder / "run.json").loaders:
            account.find("receipt", "the record has no loader")
        verified(account, folder / "run.json")
    return account
