"""What one scenario came to, in a form that travels between processes as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Account:
    """Faults injected by kind, batches checked, findings (none when all is well), and the player's memory afterwards.

    Written by the thread that plays; ``faults`` also by the assailant's thread, which ends before the account is read.
    """

    seed: int
    title: str = ""
    faults: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    findings: list[str] = field(default_factory=list)
    elapsed_s: float = 0.0
    resident_bytes: int = 0
    shared_bytes: int = 0

    def find(self, kind: str, text: str) -> None:
        """Note a discrepancy.

        ``kind`` is one word: lost, duplicated, disordered, altered, miscounted, raised, leaked, hung, crashed.
        """
        self.findings.append(f"{kind}: {text}")

    def to_json(self) -> str:
        """One line."""
        return json.dumps({each.name: getattr(self, each.name) for each in dataclasses.fields(self)})

    @classmethod
    def from_json(cls, line: str) -> Account:
        """The account that ``to_json`` wrote."""
        fields: dict[str, Any] = json.loads(line)
        fields["faults"] = Counter(fields["faults"])
        return cls(**fields)
