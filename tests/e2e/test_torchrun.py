"""Jobs of 2 and 3 ranks, as torchrun starts them, save in the middle of an epoch and go on with 1, 2 and 3.

Row 51: ranks that get unequally many batches wait for each other at the end of the epoch, and so would these.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.e2e.ranked import Row, loader, rows, whole

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 100
"""A job takes some seconds; a rank that waits for another would take for ever."""

Leg = dict[str, Any]

# After 3 batches of 4 samples 24 of them are gone on 2 ranks and 36 on 3, so that 24 and 12 are left of 48: they go round on any
# number of ranks. Of 53, 29 and 17 are left, which do not.
EPOCHS: dict[str, dict[str, Any]] = {
    "even": {"length": 48, "num_workers": 2},
    "padded": {"length": 53, "num_workers": 0},
    "trimmed": {"length": 53, "num_workers": 2, "sampler": {"drop_last": True}},
}
OWN_STATES = {"even": True, "padded": False, "trimmed": False}
"""Whether every rank loads what it saved, where there are as many; otherwise all load rank 0's."""


def torchrun(ranks: int, legs: list[Leg], folder: Path) -> None:
    """Run these legs in one job."""
    (folder / "legs.json").write_text(json.dumps(legs))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    job = subprocess.Popen(
        [*launcher, "-m", "tests.e2e.ranks_job", str(folder)],
        cwd=ROOT,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        said = job.communicate(timeout=PATIENCE_S)[0]
    except BaseException:
        job.terminate()  # it ends its ranks, which have sessions of their own
        try:
            job.communicate(timeout=PATIENCE_S)
        finally:
            job.kill()
        raise
    assert job.returncode == 0, said


def first(epoch: str, ranks: int) -> Leg:
    """Three batches from the beginning."""
    leg = {"name": f"{epoch}{ranks}", "ranks": ranks, "loader": EPOCHS[epoch]}
    return {**leg, "load": None, "own": False, "batches": 3}


def rest(epoch: str, saved_on: int, ranks: int) -> Leg:
    """What is left of an epoch that was begun on ``saved_on`` ranks."""
    leg = {"name": f"{epoch}{saved_on}on{ranks}", "ranks": ranks, "loader": EPOCHS[epoch]}
    own = OWN_STATES[epoch] and saved_on == ranks
    return {**leg, "load": f"{epoch}{saved_on}", "own": own, "batches": None}


def dealt(folder: Path, name: str, ranks: int) -> list[Row]:
    """What all ranks of a leg were given, in the order of places."""
    shares = [json.loads((folder / f"{name}.{rank}.rows").read_text()) for rank in range(ranks)]
    return [tuple(row) for step in zip(*shares, strict=True) for row in step]


def alone(folder: Path, epoch: str, saved_on: int) -> list[Row]:
    """The rest of an epoch in this process, without a process group."""
    train = loader(**EPOCHS[epoch])
    train.load_state_dict(json.loads((folder / f"{epoch}{saved_on}.0.state").read_text()))
    return [row for batch in train for row in rows(batch)]


def test_a_job_goes_on_with_any_number_of_ranks(tmp_path: Path) -> None:
    torchrun(2, [leg for epoch in EPOCHS for leg in (first(epoch, 2), rest(epoch, 2, 2))], tmp_path)
    # A job takes seconds to start: two ranks of the three are the job that goes on with two.
    legs = [
        leg
        for epoch in EPOCHS
        for leg in (first(epoch, 3), rest(epoch, 3, 3), rest(epoch, 2, 3), rest(epoch, 3, 2))
    ]
    torchrun(3, legs, tmp_path)
    for epoch, arguments in EPOCHS.items():
        length = arguments["length"]
        expected = whole(length)
        for saved_on in (2, 3):
            begun = dealt(tmp_path, f"{epoch}{saved_on}", saved_on)
            assert begun == expected[: 12 * saved_on]
            for ranks in (1, 2, 3):
                if ranks == 1:
                    later = alone(tmp_path, epoch, saved_on)
                else:
                    later = dealt(tmp_path, f"{epoch}{saved_on}on{ranks}", ranks)
                check(epoch, expected, begun + later, ranks, length - len(begun))


def check(epoch: str, expected: list[Row], seen: list[Row], ranks: int, left: int) -> None:
    """Every sample as the uninterrupted single process made it: exactly once, but for what padding and trimming say."""
    length = len(expected)
    beyond = -left % ranks
    if epoch == "trimmed":
        assert seen == expected[: length - left % ranks]
        return
    assert seen[:length] == expected
    assert len(seen) == length + beyond
    if epoch == "even":
        assert beyond == 0
    times = Counter(row[0] for row in seen)
    assert sorted(times) == list(range(length))
    assert sorted(index for index, count in times.items() if count > 1) == sorted(
        row[0] for row in expected[:beyond]
    )
