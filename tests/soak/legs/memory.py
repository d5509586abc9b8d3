"""The kernel kills workers that need more memory than their cgroup has. A fault is one worker that it killed.

A worker that makes a hungry row enters a cgroup of its own, with a small limit, and then takes more. It is killed there and
nothing else is: the row is made again by the next worker, which is not hungry any more.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import torch

from tests.fault.datasets import Marks
from tests.soak.account import Account
from tests.soak.accounting import accounted, check_receipt
from tests.soak.rows import Noisy, compare, loader_of, options_for, read

_ROOTS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
_LIMIT_BYTES = 32 << 20
EPOCHS = 4


def unable() -> str:
    """Whether a cgroup with a limit can be made here."""
    group = _group(f"stoker-soak-probe-{os.getpid()}")
    if isinstance(group, str):
        return group
    group.rmdir()
    return ""


def _group(name: str) -> Path | str:
    """A new cgroup with the limit, or why there is none."""
    for root in _ROOTS:
        for file in ("memory.limit_in_bytes", "memory.max"):
            group = root / name
            try:
                group.mkdir()
            except OSError as error:
                reason = f"no cgroup can be made: {error}"
                continue
            try:
                (group / file).write_text(str(_LIMIT_BYTES))
            except OSError as error:
                reason = f"no limit can be set: {error}"
                group.rmdir()
                continue
            return group
    return reason


class Hungry(Noisy):
    """Rows of which some need too much memory, once each."""

    def __init__(self, rows: int, hungry: frozenset[int], group: str, folder: Path) -> None:
        super().__init__(rows)
        self.hungry = hungry
        self.group = group
        self.marks = Marks(folder)

    def __getitem__(self, index: int) -> Any:
        if index in self.hungry and torch.utils.data.get_worker_info() and self.marks.set(f"oom-{index}"):
            Path(self.group, "cgroup.procs").write_text(str(os.getpid()))
            bytearray(os.urandom(1 << 20) * (4 * _LIMIT_BYTES >> 20))
            self.marks.set(f"survived-{index}")
        return super().__getitem__(index)


def play(seed: int) -> Account:
    """Play the scenario of this seed."""
    account = Account(seed)
    dice = Random(seed)
    account.where = where = dice.choices(("fork", "forkserver"), (4, 1))[0]
    options = options_for(where, dice)
    account.title = f"{where} {options}"
    with accounted(account) as folder:
        group = _group(f"stoker-soak-{os.getpid()}-{seed}")
        assert isinstance(group, Path), group
        try:
            _play(account, dice, options, group, folder, seed)
        finally:
            group.rmdir()
    return account


def _play(
    account: Account, dice: Random, options: dict[str, Any], group: Path, folder: Path, seed: int
) -> None:
    rows = 60
    hungry = frozenset(dice.sample(range(rows), 6))
    dataset = Hungry(rows, hungry, str(group), folder)
    with loader_of(Noisy(rows), seed) as reference, loader_of(dataset, seed, **options) as loader:
        for epoch in range(EPOCHS):
            expected = read(reference, seed + epoch)
            if not compare(account, read(loader, seed + epoch), expected, f"epoch {epoch}"):
                break
            check_receipt(account, loader.receipt(), reference.receipt(), folder)
            for index in hungry:
                mark = folder / f"oom-{index}"
                if mark.exists():
                    mark.unlink()
                    account.faults["OOM in a cgroup"] += 1
    survived = dataset.marks.count("survived-")
    account.faults["OOM in a cgroup"] -= survived
