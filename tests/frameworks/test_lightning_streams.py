"""Lightning reads one batch ahead of a loader without a length: a checkpoint counts what was trained on, with our callback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stoker
from tests.frameworks.packages import needs
from tests.frameworks.processes import in_fork
from tests.frameworks.samples import Batches, NumberStream

L = needs("lightning")
LENGTH, BATCH = 26, 4


def legs(folder: Path, workers: int, steps: int, helped: bool) -> tuple[Batches, Batches]:
    """Two epochs as a whole, and the same in two legs, of which the first ends after so many steps."""
    from stoker.integrations.lightning import TrainedBatches
    from tests.frameworks.test_lightning import Seen, trainer

    parts = []
    for number, last in enumerate((-1, steps, -1)):
        model = Seen()
        made = stoker.DataLoader(NumberStream(LENGTH), batch_size=BATCH, num_workers=workers)
        save = L.pytorch.callbacks.ModelCheckpoint(
            folder / str(number), "{step}", save_top_k=-1, every_n_train_steps=1
        )
        options: dict[str, Any] = {"callbacks": [save, TrainedBatches()] if helped else [save]}
        first = folder / "1" / f"step={steps}.ckpt" if number == 2 else None
        trainer(folder, max_steps=last, **options).fit(model, made, ckpt_path=first, weights_only=False)
        parts.append(model.trained)
    return parts[0], parts[1] + parts[2]


@pytest.mark.parametrize(("workers", "steps"), [(0, 1), (0, 4), (2, 3), (0, 6), (0, 8)])
def test_a_stream_resumes_without_a_loss(workers: int, steps: int, tmp_path: Path) -> None:
    whole, parts = in_fork(legs, tmp_path, workers, steps, True)
    assert parts == whole


def test_it_loses_a_batch_without_the_callback(tmp_path: Path) -> None:
    """If this fails, Lightning does not read ahead any more: the callback, and its place in the documentation, can go."""
    whole, parts = in_fork(legs, tmp_path, 0, 4, False)
    assert parts == whole[:4] + whole[5:]
