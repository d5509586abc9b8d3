"""Epochs in legs: each leg loads the state of the one before, with another executor, start method and number of workers.

Workers are killed on the way. Now and then an epoch is long. All legs together are the epoch without workers, and their receipts
add up to one.
"""

from __future__ import annotations

import json
import os
import signal
from itertools import islice
from random import Random
from typing import Any

from tests.soak.account import Account
from tests.soak.accounting import accounted, verified
from tests.soak.rows import Noisy, compare, loader_of, options_for, read

ROWS, MANY_ROWS = 120, 6000
WHERES = ("inline", "thread", "fork", "fork", "forkserver")


def play(seed: int) -> Account:
    """Play the scenario of this seed."""
    account = Account(seed)
    dice = Random(seed)
    by_sample = dice.random() < 0.3
    legs = [dice.choice(WHERES) for _ in range(dice.randint(2, 5))]
    noisy = "thread" not in legs
    rng = "sample" if by_sample else "batch"
    account.where = "+".join(sorted(set(legs)))
    long = Random(seed + 1).random() < 0.06
    account.title = f"{' '.join(legs)} rng={rng}{' long' if long else ''}"
    with accounted(account) as folder:
        dataset = Noisy(MANY_ROWS if long else ROWS, noisy=noisy)
        data: dict[str, Any] = {"rng": rng, "batch_size": 4}
        with loader_of(dataset, seed, **data) as reference:
            expected = read(reference, seed)
        del reference
        found: list[Any] = []
        state: dict[str, Any] | None = None
        paths = []
        for number, where in enumerate(legs):
            loader = loader_of(dataset, seed if state is None else number, **data, **options_for(where, dice))
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
                account.faults[f"resume in {where}"] += 1
            last = number == len(legs) - 1
            wanted = None if last else dice.randint(0, (len(expected) - len(found)) // 2)
            with loader:
                iterator = iter(loader)
                for batch in islice(iterator, wanted):
                    found.append(batch.tolist())
                    if dice.random() < (0.01 if long else 0.1):
                        _kill(iterator, dice, account)
                state = loader.state_dict()
                receipt = loader.receipt()
                del iterator
            del loader
            if receipt is not None and receipt.batches:
                paths.append(folder / f"{number}.receipt")
                receipt.save(paths[-1])
        if compare(account, found, expected, "all legs together") and paths:
            verified(account, *paths)
    return account


def _kill(iterator: Any, dice: Random, account: Account) -> None:
    alive = [each for each in iterator._workers if each.pid is not None and each.is_alive()]
    if alive:
        how = dice.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV))
        os.kill(dice.choice(alive).pid, how)
        account.faults[how.name] += 1
