"""Nodes of a Ray cluster on loopback are killed while a loader is read, or a host is cut off the network: ``tests.ray.scenarios``.

Ray runs in a process of its own, below a stage that ends it. A fault is one node that was killed, or one cut.
"""

from __future__ import annotations

import importlib.util
from random import Random

from tests.ray import namespaces
from tests.ray.stage import run
from tests.soak.account import Account
from tests.soak.accounting import accounted

_WITHIN_S = 200.0


def unable() -> str:
    """Whether Ray is installed."""
    return "" if importlib.util.find_spec("ray") else "ray is not installed"


def play(seed: int) -> Account:
    """Play the scenario of this seed."""
    account = Account(seed, where="ray")
    dice = Random(seed)
    what = dice.choices(("kills", "cut-off"), (2, 1))[0]
    account.title = what
    with accounted(account):
        if what == "kills":
            found = run("scenarios.node_kills", within_s=_WITHIN_S, seconds=40.0, every_s=2.0)
            account.faults["Ray node killed"] += found["kills"]
        else:
            found = run("scenarios.cut_off", within_s=_WITHIN_S, prefix=namespaces.enter())
            account.faults["network cut"] += 1
        account.batches += found["batches"]
        for finding in found["findings"]:
            account.find("lost" if finding.startswith("lost") else "altered", finding)
    return account
