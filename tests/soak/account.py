"""What one scenario came to, in a form that travels between processes as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

KINDS = (
    "lost", "duplicated", "disordered", "altered", "miscounted", "receipt", "raised", "leaked", "hung", "crashed",
)  # fmt: skip
"""What a finding can be."""


@dataclass(slots=True)
class Account:
    """Faults that happened by kind, batches and receipts checked, findings (none when all is well), and memory afterwards.

    Written by the thread that plays; ``faults`` also by the assailant's thread, which ends before the account is read.
    """

    seed: int
    title: str = ""
    leg: str = ""
    faults: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    receipts: int = 0
    where: str = ""
    """Where batches were made: a start method, or an executor."""
    findings: list[str] = field(default_factory=list)
    elapsed_s: float = 0.0
    resident_bytes: int = 0
    shared_bytes: int = 0

    def find(self, kind: str, text: str) -> None:
        """Note a discrepancy of one of ``KINDS``."""
        assert kind in KINDS, kind
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
