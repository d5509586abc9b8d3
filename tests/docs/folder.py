"""The files that the docs speak of, so that their commands find them: a script, records, traces, logs."""

from __future__ import annotations

import json
import random
from pathlib import Path

from stoker._receipt.data_receipt import DataReceipt, ReceiptFacts
from stoker._receipt.receipt_writer import ReceiptWriter
from stoker._record import journal
from stoker._record.schema import RunRecord
from tests.unit.profiled import Profiled
from tests.unit.records import SECOND, loader, run, steps

TRAIN = """\
import torch
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((3, 8, 8), float(index)), index % 10


dataset = Pictures()
loader = DataLoader(dataset, batch_size=8, num_workers=2)


def make_loader():
    return DataLoader(dataset, batch_size=8)


make = make_loader


def step(batch):
    images, labels = batch
    return images.mean()


def main():
    for batch in loader:
        step(batch)


if __name__ == "__main__":
    main()
"""

ERROR = """\
Traceback (most recent call last):
  File "train.py", line 85, in main
    for batch in loader:
  File ".../torch/utils/data/dataloader.py", line 1295, in _try_get_data
    raise RuntimeError(f'DataLoader worker (pid(s) {pids_str}) exited unexpectedly') from e
RuntimeError: DataLoader worker (pid 15524) is killed by signal: Killed.
"""


LATER = 600
"""Seconds: a run that begins then is another one."""

DIAGNOSIS = {
    "format": "stoker-diagnosis",
    "version": 1,
    "subject": "train.py:loader",
    "worst": "low",
    "findings": [
        {"code": "STK301", "severity": "low", "title": "A finding", "evidence": "seen", "advice": "Mend it."}
    ],
}
TUNING = {
    "format": "stoker-tuning",
    "version": 1,
    "target": "train.py:loader",
    "verdict": "Keep 2 workers.",
    "recommended": {"num_workers": 2},
    "points": [],
}


STEP_BY_STEP = ("docs/quickstart.md", "docs/starving.md")
"""Pages that are followed from top to bottom: a record that they read is one that they have told how to make."""


def fill(folder: Path, page: str) -> None:
    """Make them for this page."""
    (folder / "train.py").write_text(TRAIN)
    package = folder / "my" / "package"
    package.mkdir(parents=True)
    for each in (package.parent, package):
        (each / "__init__.py").touch()
    for name in ("data.py", "train.py"):
        (package / name).write_text(TRAIN)
    for name in ("error.log", "run.log", "train.log"):
        (folder / name).write_text(ERROR)
    for name in ("a.receipt", "b.receipt"):
        receipt().save(folder / name)
    for name in ("run.stoker.json", "run.jsonl", "run.json", "before.stoker.json"):
        journal.write(record(), folder / name)
    journal.write(record(LATER), folder / "after.stoker.json")
    for name, document in (("doctor.json", DIAGNOSIS), ("tuning.json", TUNING)):
        (folder / name).write_text(json.dumps(document))
    (folder / "log").mkdir()
    for name in ("worker0.pt.trace.json.gz", "log/worker0.pt.trace.json", "trace.json"):
        trace().write(folder / name)
    for rank in range(3):
        trace(rank).write(folder / f"rank{rank}.json")
    if page in STEP_BY_STEP:
        (folder / "run.stoker.json").unlink()
    if page == "docs/checks/STK908.md":
        (folder / "trace.json").write_text("{}")


def receipt() -> DataReceipt:
    """Of an epoch of 1000 samples in 16 batches."""
    facts = ReceiptFacts(length=1000, batch_size=64, loader=random.getrandbits(32))
    begun = DataReceipt(id=random.getrandbits(32), facts=facts, epoch=0, seed=0, sampler_epoch=None, first=0)
    writer = ReceiptWriter(begun, lambda: facts, batched=True, streams=False)
    for number in range(16):
        writer.note(number, list(range(1000))[64 * number : 64 * number + 64])
    writer.finish()
    return writer.receipt()


def record(began_s: int = 0) -> RunRecord:
    """A run that waits for I/O, and began so long after the usual one."""
    usual = run(loader({("fetch", 0, "io"): 0.6, ("fetch", 1, "io"): 0.3}, steps=steps(60)))
    usual.run.id = f"4000-{began_s}"
    usual.run.began_unix_ns += began_s * SECOND
    usual.run.began_ns += began_s * SECOND
    return usual


def trace(rank: int | None = None) -> Profiled:
    """Five steps in which the device waits for data."""
    made = Profiled(rank=rank, world_size=None if rank is None else 3)
    for _ in range(5):
        with made.step():
            made.next(8)
            made.launch(2)
    return made
