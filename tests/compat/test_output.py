"""What a worker says reaches the parent: prints, warnings and log records, whatever the start method."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

import pytest
from torch.utils.data import Dataset

from tests.compat.compare import StokerLoader

METHODS = ["fork", "spawn"]
LOGGER = "tests.compat.talkative"


class Talkative(Dataset[Any]):
    """Says something in one way, once."""

    def __init__(self, way: str) -> None:
        self.way = way

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            getattr(self, "_" + self.way)()
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


def run(way: str, method: str | None) -> None:
    if method is None:
        list(StokerLoader(Talkative(way)))
    else:
        list(StokerLoader(Talkative(way), num_workers=1, multiprocessing_context=method))


@pytest.mark.parametrize("method", [None, *METHODS])
@pytest.mark.parametrize("way", ["print", "unfinished"])
def test_prints(way: str, method: str | None, capfd: pytest.CaptureFixture[str]) -> None:
    run(way, method)
    assert capfd.readouterr().out.count("said") == 1


@pytest.mark.parametrize("method", [None, *METHODS])
def test_what_goes_to_stderr(method: str | None, capfd: pytest.CaptureFixture[str]) -> None:
    run("stderr", method)
    assert capfd.readouterr().err.count("said on stderr") == 1


@pytest.mark.parametrize("method", [None, *METHODS])
def test_warnings(method: str | None, capfd: pytest.CaptureFixture[str]) -> None:
    """Heard as a warning of the parent's, or printed: never lost."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        run("warn", method)
    recorded = [str(entry.message) for entry in heard]
    printed = capfd.readouterr().err
    assert any("said by warning" in text for text in [*recorded, printed])


class Collecting(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.mark.parametrize("method", [None, *METHODS])
def test_log_records(method: str | None) -> None:
    """The parent's handlers get them, at the parent's level, once."""
    logger = logging.getLogger(LOGGER)
    handler = Collecting()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        run("log", method)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
    assert [record.getMessage() for record in handler.records] == ["said by logging"]
    (record,) = handler.records
    assert (record.name, record.levelno, record.funcName) == (LOGGER, logging.INFO, "_log")
