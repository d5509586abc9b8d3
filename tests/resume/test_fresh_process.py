"""States go through text into an interpreter that knows nothing of the process that saved them."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import stoker
from tests.compat.compare import seed_everything
from tests.resume import streams
from tests.resume.runs import Recipe, Way, copied, fingerprint, loader
from tests.warm import environment

RECIPES = [
    Recipe("augmented", order="shuffle"),
    Recipe("stored", order="buckets", rng="sample"),
    Recipe("keyed", order="random, generator"),
    Recipe("together", order="counted"),
    Recipe("ragged", order="elastic", rng="sample", length=99),
]
"""One of each kind of order; the streams follow them."""


def running(kind: int, salt: int) -> Any:
    """The loader number ``kind``: forked workers where it is taken up, none where it was saved."""
    workers = 2 * salt
    if kind < len(RECIPES):
        return loader(RECIPES[kind], Way(workers=workers, method="fork" if workers else None), salt=salt)
    dataset = streams.KINDS[streams.SIMPLE[kind - len(RECIPES)]](30)
    context = "fork" if salt else None
    return stoker.DataLoader(dataset, batch_size=4, num_workers=salt, multiprocessing_context=context)


def digest(batches: list[Any]) -> list[str]:
    return [hashlib.sha256(fingerprint(batch)).hexdigest() for batch in batches]


def rest_of(states: list[Any]) -> list[list[str]]:
    """What is left of every run, in this process."""
    rests = []
    for kind, state in enumerate(states):
        with running(kind, 1) as taken_up:
            taken_up.load_state_dict(state)
            rests.append(digest(list(taken_up)))
    return rests


def test_a_fresh_interpreter_goes_on() -> None:
    states, expected = [], []
    for kind in range(len(RECIPES) + len(streams.SIMPLE)):
        seed_everything(kind)
        with running(kind, 0) as first:
            iterator = iter(first)
            for _ in range(3):
                next(iterator)
            states.append(first.state_dict())
            expected.append(digest([copied(batch) for batch in iterator]))
    done = subprocess.run(
        [sys.executable, "-m", "tests.resume.test_fresh_process"],
        input=json.dumps(states),
        capture_output=True,
        text=True,
        timeout=100,
        cwd=Path(__file__).resolve().parents[2],
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected


if __name__ == "__main__":
    print(json.dumps(rest_of(json.load(sys.stdin))))
