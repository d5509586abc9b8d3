"""Which samples the work probe asks for: the target's own order, in smaller batches where samples are slow; then the same again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stoker._tools.sandbox.subject import Subject
from stoker._tools.tune.instruments.bench_loader import EndlessOrder

_VAIN = 64


class ProbeOrder:
    """A batch sampler that is told what to do next while it is in use. The loader asks two batches ahead."""

    def __init__(self, subject: Subject, *, rows: int | None) -> None:
        """``rows`` is how many indices of a batch are asked for; None: all."""
        self._order = EndlessOrder(subject)
        self.rows = rows
        self.issued: list[Any] = []
        """What was asked for, in order: by a batch's number."""
        self.first_whole = 0
        """From which batch on they have the size that was settled last."""
        self.first_again: int | None = None
        """From which batch on they are those from ``first_whole`` on, once more."""
        self.taken = 0
        """Batches that came; told by whoever takes them."""
        self._again = False

    def settle(self, rows: int | None) -> None:
        """How many rows of a batch are asked for from now on."""
        if rows != self.rows:
            self.rows, self.first_whole = rows, len(self.issued)

    def again(self) -> None:
        """From the next one on the same batches once more."""
        self._again = True

    def __iter__(self) -> Iterator[Any]:
        for batch in self._order:
            if self._again or (not self.taken and len(self.issued) >= _VAIN):
                break
            part = batch if self.rows is None or not isinstance(batch, list) else batch[: self.rows]
            self.issued.append(part)
            yield part
        if not self._again:
            return
        self.first_again = len(self.issued)
        first = self.issued[self.first_whole :]
        while first:
            yield from first
