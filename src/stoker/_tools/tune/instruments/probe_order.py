"""The samples for the work probe: the target's own order, in smaller batches if samples are slow, and then the same again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stoker._tools.sandbox.subject import Subject
from stoker._tools.tune.instruments.bench_loader import EndlessOrder

_VAIN = 64


class ProbeOrder:
    """A batch sampler that can be changed while it is in use. The loader asks two batches ahead."""

    def __init__(self, subject: Subject, *, rows: int | None) -> None:
        """``rows`` is the number of indices of a batch that are used; None: all."""
        self._order = EndlessOrder(subject)
        self.rows = rows
        self.issued: list[Any] = []
        """The batches so far, by number."""
        self.first_whole = 0
        """The first batch with the final size."""
        self.first_again: int | None = None
        """The first batch of the repetition, which begins with ``first_whole``."""
        self.taken = 0
        """Batches taken so far; the caller counts them."""
        self._again = False

    def settle(self, rows: int | None) -> None:
        """Set the number of rows of a batch from now on."""
        if rows != self.rows:
            self.rows, self.first_whole = rows, len(self.issued)

    def again(self) -> None:
        """Repeat the same batches from the next one on."""
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
