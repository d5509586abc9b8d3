"""Puts the answers about some receipts together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stoker._tools.verify import coverage, legs, same
from stoker._tools.verify.answer import VerifyAnswer, grouped
from stoker._tools.verify.runs import VerifiedLoader, loaders_of
from stoker._tools.verify.sources import ReceiptSource, read

FORMAT, VERSION = "stoker-verify", 1


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found in the receipts of some loaders."""

    loaders: list[VerifiedLoader]
    answers: list[VerifyAnswer]

    @property
    def faults(self) -> int:
        """How many answers say that something is wrong."""
        return sum(each.level == "fault" for each in self.answers)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        loaders = [
            {
                "name": loader.name,
                "runs": [[receipt.as_dict() for receipt in run.receipts] for run in loader.runs],
            }
            for loader in self.loaders
        ]
        answers = [{**asdict(each), "epochs": list(each.epochs)} for each in self.answers]
        return {
            "format": FORMAT,
            "version": VERSION,
            "faults": self.faults,
            "answers": answers,
            "loaders": loaders,
        }


def verify(paths: Sequence[Path]) -> Verification:
    """Read receipts and judge them. Raises RecordError for what cannot be read."""
    sources = read(paths)
    loaders = loaders_of(sources)
    return Verification(loaders, grouped([*_damages(sources), *_answers(loaders)]))


def _damages(sources: Sequence[ReceiptSource]) -> Iterator[VerifyAnswer]:
    for source in sources:
        for damage in source.damages:
            yield VerifyAnswer("files", "fault", "damaged", damage)


def _answers(loaders: Sequence[VerifiedLoader]) -> Iterator[VerifyAnswer]:
    for loader in loaders:
        if len(loader.runs) > 1:
            yield from same.compare_runs(loader)
        for place, run in enumerate(loader.runs, 1):
            title = f"run {place}: " if len(loader.runs) > 1 else ""
            yield from coverage.cover(run, title)
            yield from legs.add_up(run, title)
            yield from legs.see_orders(run, title)
