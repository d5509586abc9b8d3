"""Batches on the fake accelerator, see ``tests.device.stress``. torch cannot forget it: nothing else is played."""

from __future__ import annotations

from tests import fake_device
from tests.device.stress import stress
from tests.soak.account import Account
from tests.soak.accounting import accounted

BATCHES = 400
FAULTS = ("killed", "forked", "broken off", "dropped on another thread", "closed in mid-epoch")


def unable() -> str:
    """The device is built with a compiler, for a new torch."""
    try:
        fake_device.load()
    except Exception as error:
        return str(error).splitlines()[0]
    return ""


def play(seed: int) -> Account:
    """Play the scenario of this seed."""
    account = Account(seed, where="device")
    fake = fake_device.load()
    with accounted(account):
        outcome = stress(fake, BATCHES, seed)
        account.batches = outcome.batches
        for name in FAULTS:
            account.faults[f"device: {name}"] += outcome.happened[name]
        for name, count in outcome.happened.items():
            if name.endswith("refused") and not name.endswith("nothing refused"):
                account.faults["device: memory refused"] += count
        for finding in outcome.findings:
            account.find("leaked" if "left" in finding or "leaked" in finding else "altered", finding)
    return account
