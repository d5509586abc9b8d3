"""A fixed choice of fuzzed inputs for every format, read in processes of their own; and what the fuzzer itself must notice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import guided
from tests.fuzz.formats import registry

ROOT = Path(__file__).parents[2]
SEED = 1
FORMATS = registry()
COUNTS = {
    "page": 8,
    "report": 60,
    "tuning-report": 40,
    "diagnosis-report": 40,
    "demo-report": 40,
    "trace": 60,
    "packed-trace": 60,
    "log": 80,
}
"""Inputs of slow formats, which take 20 to 100 ms each; of all others there are 200."""

WRONG = {
    "traceback": "KeyError: 'x'",
    "hang": "hang: more than 5 s",
    "memory": "memory: more than 512 MB",
    "write": "it writes outside of its folder: open",
    "unpickle": "it unpickles",
    "silent": "ValueError without a message",
    "death": "the process died: signal 11",
}


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m tests.fuzz`, which forks readers that set limits and stay alone."""
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("slow", [True, False], ids=["slow", "quick"])
def test_every_format_is_read_with_documented_errors_only(slow: bool) -> None:
    names = [name for name in FORMATS if (name in COUNTS) == slow]
    counts = [f"{name}={COUNTS.get(name, 200)}" for name in names]
    done = fuzz("--seed", str(SEED), *(part for each in counts for part in ("--counts", each)))
    assert done.returncode == 0, done.stdout + done.stderr
    read = {line.split()[0]: int(line.split()[1]) for line in done.stdout.splitlines()[1:]}
    assert {name: read[name] for name in names} == {name: COUNTS.get(name, 200) for name in names}


def test_what_is_wrong_is_noticed() -> None:
    """Readers that are wrong on purpose (tests/fuzz/self_test.py), and how each is told."""
    names = [f"self-test-{kind}" for kind in WRONG]
    done = fuzz("--seed", "1", *(part for name in names for part in ("--counts", f"{name}=1")))
    assert done.returncode == 1, done.stdout + done.stderr
    for kind, words in WRONG.items():
        begin = f" times: python -m tests.fuzz --format self-test-{kind} --seed 1 --only 0\n"
        _, found, told = done.stdout.partition(begin)
        assert found, done.stdout
        assert words in told.partition("\n\n")[0]


def test_inputs_are_functions_of_their_number() -> None:
    for kind in FORMATS.values():
        if kind.name not in COUNTS:
            assert kind.input(SEED, 7) == kind.input(SEED, 7)


@pytest.mark.skipif(not guided.available(), reason="atheris is not installed (the extra `fuzz`)")
@pytest.mark.parametrize("name", ["receipt", "run-page"])
def test_a_guided_run_finds_nothing(name: str) -> None:
    done = fuzz("--atheris", name, "--count", "2000", "--seed", "1")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Done 2000 runs" in done.stderr
