"""Ctrl-C as a signal, at any moment while workers start, work and end, under every start method.

The leg ``interrupts`` comes to every bytecode of the engine; this one also comes to waits, to system calls, and into the code of
multiprocessing. A fault is one KeyboardInterrupt. Afterwards the same loader gives a whole epoch, and nothing is left open.
"""

from __future__ import annotations

import os
import signal
import threading
from random import Random
from types import FrameType
from typing import Any

from stoker.testing import holdings, leaks_since
from tests.soak.account import Account
from tests.soak.accounting import GRACE_S, accounted
from tests.soak.rows import Noisy, compare, loader_of, options_for, read

ROWS, EPOCHS = 24, 3
_ROUNDS = {"fork": 20, "forkserver": 12, "spawn": 2}
_WITHIN_S = {"fork": 0.1, "forkserver": 0.25, "spawn": 4.0}
"""The interrupt comes at a moment drawn from this time, in which workers start, make all batches and end."""


class _Alarm:
    """``with``: SIGINT after some time. It raises inside the block only. ``rang``: it did."""

    def __init__(self, after_s: float) -> None:
        self.rang = False
        self._armed = True
        self._over = threading.Event()
        self._after_s = after_s
        self._thread = threading.Thread(target=self._wait)

    def __enter__(self) -> _Alarm:
        self._before = signal.signal(signal.SIGINT, self._ring)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._armed = False
        self._over.set()
        self._thread.join()
        signal.signal(signal.SIGINT, self._before)

    def _wait(self) -> None:
        if not self._over.wait(self._after_s):
            os.kill(os.getpid(), signal.SIGINT)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed, self.rang = False, True
            raise KeyboardInterrupt


def play(seed: int) -> Account:
    """Play the scenario of this seed, on the main thread."""
    account = Account(seed)
    dice = Random(seed)
    account.where = where = dice.choices(("fork", "forkserver", "spawn"), (4, 6, 1))[0]
    options = options_for(where, dice)
    heavy = where != "spawn" and dice.random() < 0.3  # then workers are forked from a template
    account.title = f"{where} {'heavy ' if heavy else ''}{options}"
    with accounted(account):
        _play(account, dice, options, heavy, seed)
    return account


def _play(account: Account, dice: Random, options: dict[str, Any], heavy: bool, seed: int) -> None:
    dataset: Any = Noisy(ROWS)
    if heavy:
        dataset.ballast = [str(number) * 9 for number in range(50_000)]
    with loader_of(dataset, seed) as reference:
        expected = [read(reference, seed + epoch) for epoch in range(EPOCHS)]
    before = holdings()
    rounds = _ROUNDS[account.where]
    for number in range(rounds):
        loader = loader_of(dataset, seed, **options)
        epoch = dice.randrange(EPOCHS)
        found: list[Any] | None = None
        alarm = _Alarm(dice.uniform(0, _WITHIN_S[account.where]))
        try:
            with alarm:
                found = read(loader, seed + epoch)
        except KeyboardInterrupt:
            pass
        account.faults["Ctrl-C"] += alarm.rang
        if found is not None:
            compare(account, found, expected[epoch], "without an interrupt")
        if dice.random() < 0.3 or number == rounds - 1:
            compare(account, read(loader, seed + epoch), expected[epoch], "after Ctrl-C")
        loader.close()
        del loader
        for leak in leaks_since(before, grace_s=GRACE_S):
            account.find("leaked", f"{leak}, after Ctrl-C")
        if account.findings:
            return
