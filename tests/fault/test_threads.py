"""What would end a worker thread reaches the consumer instead: nobody reports the death of a thread."""

from __future__ import annotations

from typing import Any

import pytest

import stoker


class Quitter:
    """Its row 7 asks the interpreter to end."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        if index == 7:
            raise self.error
        return index


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "executor": "thread"}], ids=["inline", "thread"])
def test_a_row_that_quits(error: BaseException, options: dict[str, Any]) -> None:
    dataset: Any = Quitter(error)
    iterator = iter(stoker.DataLoader(dataset, batch_size=5, **options))
    assert next(iterator).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(type(error)):
        next(iterator)
    iterator._shutdown_workers()


def test_a_worker_init_fn_that_quits() -> None:
    def quit_at_once(worker: int) -> None:
        raise SystemExit(3)

    dataset: Any = list(range(20))
    loader = stoker.DataLoader(dataset, executor="thread", num_workers=2, worker_init_fn=quit_at_once)
    with pytest.raises(SystemExit):
        next(iter(loader))
