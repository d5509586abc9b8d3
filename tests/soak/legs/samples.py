"""Bad samples, many of them: rows that raise, rows of None, collate functions and samplers that raise, in short epochs.

A fault is one bad sample, or one exception, that the loader met and told. All of them are compared with ``num_workers=0``.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from stoker.errors import NoGoodSample
from tests.soak.account import Account
from tests.soak.accounting import accounted, check_receipt
from tests.soak.rows import Bad, Noisy, loader_of, options_for

EPOCHS = {"inline": 80, "thread": 60, "fork": 15}


def play(seed: int) -> Account:
    """Play the scenario of this seed."""
    account = Account(seed)
    dice = Random(seed)
    account.where = where = dice.choices(("inline", "thread", "fork"), (4, 3, 2))[0]
    rows = dice.choice((40, 200))
    bad = frozenset(dice.sample(range(rows), rows // dice.choice((2, 2, 4, 10))))
    how = dice.choice(("raise", "skip", "replace"))
    data = {"batch_size": dice.choice((1, 4, 8)), "on_bad_sample": how}
    options = options_for(where, dice)
    account.title = f"{where} {how} {len(bad)} of {rows} rows are bad, {data}"
    with accounted(account) as folder:
        dataset = Noisy(rows, noisy=where != "thread", bad=bad)
        with (
            loader_of(dataset, seed, **data) as reference,
            loader_of(dataset, seed, **data, **options) as loader,
        ):
            _compare(account, reference, loader, seed, folder)
        del reference, loader
    return account


def _compare(account: Account, reference: Any, loader: Any, seed: int, folder: Path) -> None:
    for epoch in range(EPOCHS[account.where]):
        expected, found = _outcomes(reference, seed + epoch), _outcomes(loader, seed + epoch)
        account.batches += len(found)
        account.faults["exception"] += sum(isinstance(each, str) for each in found)
        if found != expected:
            kind = "lost" if len(found) < len(expected) else "altered"
            account.find(kind, f"epoch {epoch}: {len(found)} outcomes, {len(expected)} expected")
            return
        if epoch == 0:
            check_receipt(account, loader.receipt(), reference.receipt(), folder)
    counted, wanted = (each.stats()["bad_samples"]["count"] for each in (loader, reference))
    account.faults["bad sample"] += counted
    if counted != wanted:
        account.find("miscounted", f"{counted} bad samples, {wanted} without workers")


def _outcomes(loader: Any, seed: int) -> list[Any]:
    """Batches as plain values, and exceptions as text."""
    loader.generator.manual_seed(seed)
    found: list[Any] = []
    iterator = iter(loader)
    while True:
        try:
            found.append(next(iterator).tolist())
        except StopIteration:
            return found
        except Bad as error:
            found.append(f"row {error}")
        except (NoGoodSample, TypeError) as error:  # a row of None has no way into a batch
            found.append(type(error).__name__)
