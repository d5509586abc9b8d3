"""The sum of all accounts, as progress lines, a summary, or one JSON object."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import Any

from tests.soak.account import KINDS, Account

PROGRESS_S = 10.0
_TOLD_IN_FULL = 10
_SAME_AGAIN = "Same again: python -m tests.soak --only {leg}:{seed} --times 20"
_MIB = 2**20


class SoakTotals:
    """Adds up accounts and prints findings as they come. Used on one thread."""

    def __init__(self, seed: int, *, quiet: bool) -> None:
        self.seed = seed
        self.scenarios = 0
        self.batches = 0
        self.receipts = 0
        self.faults: Counter[str] = Counter()
        self.wheres: Counter[str] = Counter()
        self.legs: dict[str, Counter[str]] = {}
        self.left_out: dict[str, str] = {}
        self.findings: list[tuple[str, int, str]] = []
        self.slowest: tuple[float, str, int] = (0.0, "", 0)
        self._memory: dict[str, list[tuple[int, int]]] = {}
        self._quiet = quiet
        self._began_s = time.monotonic()
        self._next_line_s = self._began_s + PROGRESS_S

    def add(self, account: Account, player: int) -> None:
        """Take an account in; its findings are printed at once."""
        self.scenarios += 1
        self.batches += account.batches
        self.receipts += account.receipts
        self.faults += account.faults
        self.slowest = max(self.slowest, (account.elapsed_s, account.leg, account.seed))
        if account.resident_bytes:
            key = f"{account.leg} {player}"
            self._memory.setdefault(key, []).append((account.resident_bytes, account.shared_bytes))
        if account.where:
            self.wheres[account.where] += 1
        leg = self.legs.setdefault(account.leg, Counter())
        leg["scenarios"] += 1
        leg["faults"] += account.faults.total()
        leg["milliseconds"] += round(1000 * account.elapsed_s)
        for finding in account.findings:
            self.findings.append((account.leg, account.seed, finding))
            told = finding if len(self.findings) <= _TOLD_IN_FULL else finding.splitlines()[0]
            again = _SAME_AGAIN.format(leg=account.leg, seed=account.seed)
            self._say(
                f"FINDING {account.leg}, seed {account.seed} {account.title}\n{told}\n{again}", sys.stderr
            )

    def leave_out(self, leg: str, reason: str) -> None:
        """A leg cannot be played here."""
        self.left_out[leg] = reason
        self._say(f"not played: {leg}: {reason}", sys.stderr)

    def until_progress_s(self) -> float:
        """Seconds until a progress line is due."""
        return self._next_line_s - time.monotonic()

    def progress(self) -> None:
        """Print a line if one is due."""
        if self.until_progress_s() <= 0:
            self._next_line_s += PROGRESS_S
            self._say(self._line(), sys.stdout)

    def found(self) -> dict[str, int]:
        """How many findings there are of each kind."""
        kinds = Counter(finding.partition(":")[0] for _, _, finding in self.findings)
        return {kind: kinds[kind] for kind in KINDS}

    def summary(self) -> str:
        """All there is to tell, as text."""
        lines = [f"soak, seed {self.seed}", self._line()]
        for title, counts in (("faults", self.faults), ("where", self.wheres), ("findings", self.found())):
            told = ", ".join(f"{name} {count:,}" for name, count in Counter(counts).most_common())
            lines.append(f"  {title}: {told}")
        for name, leg in self.legs.items():
            seconds = max(1e-3, leg["milliseconds"] / 1000)
            lines.append(
                f"  {name}: {leg['scenarios']:,} scenarios, {leg['faults']:,} faults in {seconds:.0f} s of one player "
                f"({leg['faults'] / seconds:.1f}/s)"
            )
        lines += [f"  not played: {leg}: {reason}" for leg, reason in self.left_out.items()]
        lines.append("  slowest scenario: {:.1f} s, {}:{}".format(*self.slowest))
        lines += [f"  {leg}:{seed}: {finding.splitlines()[0]}" for leg, seed, finding in self.findings]
        return "\n".join(lines)

    def to_json(self) -> str:
        """All there is to tell, as one object."""
        told: dict[str, Any] = {
            "seed": self.seed,
            "elapsed_s": round(time.monotonic() - self._began_s, 1),
            "scenarios": self.scenarios,
            "batches": self.batches,
            "receipts": self.receipts,
            "faults": self.faults.total(),
            "faults_by_kind": dict(self.faults),
            **self.found(),
            "legs": {name: dict(leg) for name, leg in self.legs.items()},
            "not_played": self.left_out,
            "scenarios_by_workers": dict(self.wheres),
            "memory_bytes": {
                leg: {"first": first, "last": last} for leg, (first, last) in self._ends().items()
            },
            "findings": [
                {"leg": leg, "seed": seed, "finding": finding} for leg, seed, finding in self.findings
            ],
        }
        return json.dumps(told)

    def _line(self) -> str:
        elapsed_s = time.monotonic() - self._began_s
        total = self.faults.total()
        return (
            f"{elapsed_s:5.0f} s  {self.scenarios} scenarios  {total} faults ({total / max(1.0, elapsed_s):.1f}/s)  "
            f"{self.batches} batches  {self.receipts} receipts  {len(self.findings)} findings"
        )

    def _ends(self) -> dict[str, tuple[dict[str, float], dict[str, float]]]:
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
