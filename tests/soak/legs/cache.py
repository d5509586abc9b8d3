"""A cached dataset whose workers are killed while they fill the store: in memory, on a disk, and shared by name.

Rows are made once or more often, and every batch is the one without a cache. A fault is one worker that was killed.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import stoker
from tests.soak.account import Account
from tests.soak.accounting import accounted, check_receipt
from tests.soak.rows import Noisy, compare, loader_of, options_for, read

ROWS, EPOCHS = 160, 4


def play(seed: int) -> Account:
    """Play the scenario of this seed."""
    account = Account(seed)
    dice = Random(seed)
    account.where = where = dice.choices(("fork", "forkserver", "thread"), (4, 1, 1))[0]
    kept = dice.choice(("memory", "disk", "name"))
    options = options_for(where, dice)
    account.title = f"{kept} {where} {options}"
    with accounted(account) as folder:
        _play(account, dice, kept, options, folder, seed)
    return account


def _play(
    account: Account, dice: Random, kept: str, options: dict[str, Any], folder: Path, seed: int
) -> None:
    plain = Noisy(ROWS, noisy=False)
    places: dict[str, dict[str, Any]] = {
        "memory": {},
        "disk": {"path": folder / "store"},
        "name": {"name": f"soak-{os.getpid()}-{seed}"},
    }
    # Too small for all rows now and then: what does not fit is made each time.
    budget = dice.choice((1 << 22, 1 << 26))
    cached = stoker.cache(plain, budget, **places[kept])
    with loader_of(plain, seed) as reference, loader_of(cached, seed, **options) as loader:
        for epoch in range(EPOCHS):
            expected = read(reference, seed + epoch)
            found = _read(loader, seed + epoch, dice, account)
            if not compare(account, found, expected, f"epoch {epoch}"):
                return
            check_receipt(account, loader.receipt(), reference.receipt(), folder)


def _read(loader: Any, seed: int, dice: Random, account: Account) -> list[Any]:
    loader.generator.manual_seed(seed)
    found = []
    iterator = iter(loader)
    for batch in iterator:
        found.append(batch.tolist())
        alive = [each for each in iterator._workers if each.pid is not None and each.is_alive()]
        if alive and dice.random() < 0.15:
            how = dice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM))
            os.kill(dice.choice(alive).pid, how)
            account.faults[how.name] += 1
    return found
