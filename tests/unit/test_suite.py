"""What counts as passed when tests are run again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import suite


class Pytest:
    """Stands for runs of pytest: these tests fail that many more times."""

    def __init__(self, **failures: int) -> None:
        self.failures = failures
        self.calls: list[str] = []

    def __call__(self, arguments: Sequence[str]) -> int:
        (test,) = arguments
        self.calls.append(test)
        self.failures[test] = self.failures.get(test, 0) - 1
        return 1 if self.failures[test] >= 0 else 0


def test_what_passes_twice_alone_counts_and_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    run = Pytest()
    assert suite.steady(["one", "two"], run)
    assert run.calls == ["one", "one", "two", "two"]
    unsteady, broken = capsys.readouterr().out.split("Failed again:")
    assert "  one\n  two\n" in unsteady
    assert "none" in broken


def test_what_fails_once_more_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    assert not suite.steady(["one", "two"], Pytest(two=1))
    unsteady, broken = capsys.readouterr().out.split("Failed again:")
    assert "  one\n" in unsteady
    assert "  two\n" in broken


def test_a_failure_without_a_test_cannot_be_run_again() -> None:
    run = Pytest()
    assert not suite.steady([], run)
    assert not suite.steady([f"test {number}" for number in range(suite.MOST_AGAIN + 1)], run)
    assert run.calls == []


@pytest.mark.parametrize(
    ("codes", "again", "expected"),
    [
        ([0, 0, 0], [], 0),
        ([0, 1, 0, 0, 0], ["--again"], 0),
        ([0, 1, 0, 0, 1], ["--again"], 1),
        ([0, 1, 0], [], 1),
        ([0, 1, 2], ["--again"], 1),  # pytest was interrupted, or a file could not be read
        ([0, 0, 5], ["--again"], 1),  # a run without tests is no success
        ([0, -9, 0], ["--again"], 1),
    ],
)
def test_the_exit_code(
    codes: list[int], again: list[str], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(codes)
    monkeypatch.setattr(suite, "pytest", lambda arguments: next(left))
    monkeypatch.setattr(suite, "failed", lambda: ["tests/unit/test_one.py::test_one"])
    monkeypatch.setattr(suite, "FAILED", Path("there is no such file"))
    monkeypatch.setattr("sys.argv", ["suite", *again])
    assert suite.main() == expected
    assert list(left) == []


def test_every_test_is_in_one_run() -> None:
    serial, most, apart = suite.runs()
    assert all("mark.serial" in (suite.ROOT / path).read_text() for path in serial[2:])
    assert len(serial) > 2
    assert [each.removeprefix("--ignore=") for each in most if each.startswith("--ignore=")] == list(
        suite.APART
    )
    assert apart[-2:] == suite.APART
