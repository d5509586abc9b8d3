"""What a worker says reaches the parent: prints, warnings and log records, whatever the start method."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import Dataset

from tests.compat.compare import StokerLoader

METHODS = [None, "fork"]
LOGGER = "tests.compat.talkative"


class Talkative(Dataset[Any]):
    """Says something in one way, or in several, once."""

    def __init__(self, *ways: str) -> None:
        self.ways = ways

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            for way in self.ways:
                getattr(self, "_" + way)()
        return index

    def _print(self) -> None:
        print("said by print")

    def _stderr(self) -> None:
        print("said on stderr", file=sys.stderr)

    def _unfinished(self) -> None:
        print("said without an end of line", end="")

    def _warn(self) -> None:
        warnings.warn("said by warning", UserWarning, stacklevel=1)

    def _log(self) -> None:
        logging.getLogger(LOGGER).debug("said beneath the level")
        logging.getLogger(LOGGER).info("said by %s", "logging")


def run(method: str | None, *ways: str) -> None:
    if method is None:
        list(StokerLoader(Talkative(*ways)))
    else:
        list(StokerLoader(Talkative(*ways), num_workers=1, multiprocessing_context=method))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("way", ["print", "unfinished"])
def test_prints(way: str, method: str | None, capfd: pytest.CaptureFixture[str]) -> None:
    run(method, way)
    assert capfd.readouterr().out.count("said") == 1


@pytest.mark.parametrize("method", METHODS)
def test_what_goes_to_stderr(method: str | None, capfd: pytest.CaptureFixture[str]) -> None:
    run(method, "stderr")
    assert capfd.readouterr().err.count("said on stderr") == 1


@pytest.mark.parametrize("method", METHODS)
def test_warnings(method: str | None, capfd: pytest.CaptureFixture[str]) -> None:
    """Heard as a warning of the parent's, or printed: never lost."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        run(method, "warn")
    recorded = [str(entry.message) for entry in warned]
    printed = capfd.readouterr().err
    assert any("said by warning" in text for text in [*recorded, printed])


class Collecting(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """What the parent's handler of the dataset's logger gets; its level is INFO."""
    logger = logging.getLogger(LOGGER)
    handler = Collecting()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield handler.records
    logger.removeHandler(handler)
    logger.setLevel(level)
    logger.propagate = propagate


def assert_logged(records: list[logging.LogRecord]) -> None:
    assert [record.getMessage() for record in records] == ["said by logging"]
    (record,) = records
    assert (record.name, record.levelno, record.funcName) == (LOGGER, logging.INFO, "_log")


@pytest.mark.parametrize("method", METHODS)
def test_log_records(method: str | None, records: list[logging.LogRecord]) -> None:
    """The parent's handlers get them, at the parent's level, once."""
    run(method, "log")
    assert_logged(records)


def test_all_of_it_from_a_spawned_worker(
    records: list[logging.LogRecord], capfd: pytest.CaptureFixture[str]
) -> None:
    """In one run, because a spawned worker takes seconds to start."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        run("spawn", "print", "stderr", "warn", "log", "unfinished")
    out, err = capfd.readouterr()
    assert (out.count("said by print"), out.count("said without an end of line")) == (1, 1)
    assert err.count("said on stderr") == 1
    assert any("said by warning" in text for text in [*(str(entry.message) for entry in warned), err])
    assert_logged(records)
