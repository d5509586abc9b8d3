"""The sum of all accounts, as progress lines, a summary, or one JSON object."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import Any

from tests.soak.account import Account
from tests.soak.scenario import draw

PROGRESS_S = 10.0
_TOLD_IN_FULL = 10
_SAME_AGAIN = "Same again: python -m tests.soak --only {seed} --times 20"
_MIB = 2**20


class Ledger:
    """Adds up accounts and prints findings as they come. Used on one thread."""

    def __init__(self, seed: int, *, quiet: bool) -> None:
        self.seed = seed
        self.scenarios = 0
        self.batches = 0
        self.faults: Counter[str] = Counter()
        self.wheres: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.findings: list[tuple[int, str]] = []
        self.slowest: tuple[float, int] = (0.0, 0)
        self._memory: dict[int, list[tuple[int, int]]] = {}
        self._quiet = quiet
        self._began_s = time.monotonic()
        self._next_line_s = self._began_s + PROGRESS_S

    def add(self, account: Account, player: int) -> None:
        """Take an account in; its findings are printed at once."""
        self.scenarios += 1
        self.batches += account.batches
        self.faults += account.faults
        self.slowest = max(self.slowest, (account.elapsed_s, account.seed))
        if account.resident_bytes:
            self._memory.setdefault(player, []).append((account.resident_bytes, account.shared_bytes))
        if account.seed >= 0:
            scenario = draw(account.seed)
            self.wheres[scenario.start if scenario.executor == "process" else scenario.executor] += 1
            self.kinds[scenario.kind] += 1
        for finding in account.findings:
            self.findings.append((account.seed, finding))
            told = finding if len(self.findings) <= _TOLD_IN_FULL else finding.splitlines()[0]
            again = _SAME_AGAIN.format(seed=account.seed)
            self._say(f"FINDING seed {account.seed} {account.title}\n{told}\n{again}", sys.stderr)

    def until_progress_s(self) -> float:
        """Seconds until a progress line is due."""
        return self._next_line_s - time.monotonic()

    def progress(self) -> None:
        """Print a line if one is due."""
        if self.until_progress_s() <= 0:
            self._next_line_s += PROGRESS_S
            self._say(self._line(), sys.stdout)

    def summary(self) -> str:
        """All there is to tell, as text."""
        lines = [f"soak, seed {self.seed}", self._line()]
        for title, counts in (("faults", self.faults), ("workers", self.wheres), ("datasets", self.kinds)):
            told = ", ".join(f"{name} {count}" for name, count in counts.most_common())
            lines.append(f"  {title}: {told}")
        lines.append(f"  slowest scenario: {self.slowest[0]:.1f} s, seed {self.slowest[1]}")
        for player, (first, last) in self._ends().items():
            told = ", ".join(
                f"{name} {first[name] / _MIB:.0f} → {last[name] / _MIB:.0f} MiB" for name in first
            )
            lines.append(f"  memory of player {player}, first fifth → last fifth: {told}")
        lines += [f"  seed {seed}: {finding.splitlines()[0]}" for seed, finding in self.findings]
        return "\n".join(lines)

    def to_json(self) -> str:
        """All there is to tell, as one object."""
        told: dict[str, Any] = {
            "seed": self.seed,
            "elapsed_s": round(time.monotonic() - self._began_s, 1),
            "scenarios": self.scenarios,
            "batches": self.batches,
            "faults": self.faults.total(),
            "faults_by_kind": dict(self.faults),
            "scenarios_by_workers": dict(self.wheres),
            "scenarios_by_dataset": dict(self.kinds),
            "memory_bytes_by_player": {
                player: {"first": first, "last": last} for player, (first, last) in self._ends().items()
            },
            "findings": [{"seed": seed, "finding": finding} for seed, finding in self.findings],
        }
        return json.dumps(told)

    def _line(self) -> str:
        elapsed_s = time.monotonic() - self._began_s
        total = self.faults.total()
        return (
            f"{elapsed_s:5.0f} s  {self.scenarios} scenarios  {total} faults ({total / max(1.0, elapsed_s):.1f}/s)  "
            f"{self.batches} batches checked  {len(self.findings)} findings"
        )

    def _ends(self) -> dict[int, tuple[dict[str, float], dict[str, float]]]:
        """Per player the mean memory in its first and last fifth: a trend shows, a single large scenario does not."""
        ends = {}
        for player, seen in self._memory.items():
            fifth = max(1, len(seen) // 5)
            ends[player] = (_mean(seen[:fifth]), _mean(seen[-fifth:]))
        return ends

    def _say(self, text: str, stream: Any) -> None:
        if not self._quiet:
            print(text, file=stream, flush=True)


def _mean(seen: list[tuple[int, int]]) -> dict[str, float]:
    return {
        "resident": sum(resident for resident, _ in seen) / len(seen),
        "shared": sum(shared for _, shared in seen) / len(seen),
    }
