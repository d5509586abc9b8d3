"""Reads many inputs in child processes: a hang or a crash of one is a failure of one input and not the end.

    campaign ──fork──► reader: guard over a block of inputs ──lines of JSON──► campaign ─► findings

A child writes the number of the input that it reads to shared memory. When the child dies, that number names the culprit.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tests.fuzz.format import Format
from tests.fuzz.guard import Guard, remove_folder_of

_BLOCK = 2000
"""Inputs of one format that a child reads before the next format has its turn."""
_SHORT_BLOCK = 100
"""The same where the time is bounded: every format has its turn in a minute."""
_SEEDS_FAIL = 3
"""The exit code of a child that cannot read whole inputs."""
_MOST_FAILURES = 20
"""Per format: what fails more often is the same defect, as a rule."""


@dataclass(frozen=True, slots=True)
class FuzzFailure:
    """An input that was not read as it should be."""

    format: str
    seed: int
    number: int
    reason: str

    @property
    def defect(self) -> str:
        """What failures of one defect have in common: what was raised, and where."""
        places = [each for each in self.reason.splitlines() if each.strip().startswith("File ")]
        return f"{self.format}: {self.reason.splitlines()[-1]:.100} {places[-1].strip() if places else ''}"

    @property
    def command(self) -> str:
        """Reads this input again."""
        return f"python -m tests.fuzz --format {self.format} --seed {self.seed} --only {self.number}"


@dataclass(slots=True)
class FuzzResult:
    """What came of a campaign. ``accepted`` counts the inputs that were read without an error, by format."""

    seed: int
    inputs: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    failures: list[FuzzFailure] = field(default_factory=list)
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class _Block:
    format: Format
    first: int
    count: int


def run(
    formats: Sequence[Format],
    seed: int,
    counts: Mapping[str, int],
    *,
    until_s: float | None = None,
    told: Callable[[FuzzResult], None] = lambda _: None,
) -> FuzzResult:
    """Read so many inputs of each format. ``until_s`` is a moment of the monotonic clock."""
    result = FuzzResult(seed)
    for each in formats:
        _ = each.seeds  # made once, here
    for block in _blocks(formats, counts, _BLOCK if until_s is None else _SHORT_BLOCK):
        if until_s is not None and time.monotonic() > until_s:
            result.interrupted = True
            break
        if sum(each.format == block.format.name for each in result.failures) < _MOST_FAILURES:
            _read(block, result)
        told(result)
    return result


def shares(formats: Sequence[Format], count: int) -> dict[str, int]:
    """So many inputs in all, divided by the weights of the formats."""
    weights = sum(each.weight for each in formats)
    return {each.name: max(1, round(count * each.weight / weights)) for each in formats}


def _blocks(formats: Sequence[Format], counts: Mapping[str, int], inputs: int) -> Iterator[_Block]:
    """All formats in turns, so that a campaign that is cut short has read something of each."""
    done = dict.fromkeys(counts, 0)
    while any(done[name] < counts[name] for name in counts):
        for each in formats:
            size = min(inputs * each.weight, counts[each.name] - done[each.name])
            if size > 0:
                yield _Block(each, done[each.name], size)
                done[each.name] += size


def _read(block: _Block, result: FuzzResult) -> None:
    """Read a block, in as many children as it takes."""
    name, first, end = block.format.name, block.first, block.first + block.count
    began_s = time.monotonic()
    place = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")
    while first < end:
        place[0], place[1] = first, 0
        how = _child(block.format, result, range(first, end), place)
        first = place[0] + 1
        if how:
            result.failures.append(FuzzFailure(name, result.seed, place[0], how))
        result.accepted[name] += place[1]
    result.inputs[name] += block.count
    result.seconds[name] += round(1000 * (time.monotonic() - began_s))


def _child(kind: Format, result: FuzzResult, numbers: range, place: memoryview) -> str | None:
    """Read inputs in a child; say how it died, if it did."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        _child_main(kind, result.seed, numbers, place, writing)
    os.close(writing)
    try:
        with open(reading, encoding="utf-8") as lines:
            last: list[str] = []
            for line in lines:
                try:
                    number, reason = json.loads(line)
                except ValueError:  # of faulthandler
                    last = [*last[-30:], line]
                    continue
                result.failures.append(FuzzFailure(kind.name, result.seed, number, reason))
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    remove_folder_of(pid)
    if status == 0:
        return None
    if status == _SEEDS_FAIL:
        raise RuntimeError(f"the reader of {kind.name} fails on a whole input\n{''.join(last)}")
    return (
        f"the process died: {'exit code' if status > 0 else 'signal'} {abs(status)}\n{''.join(last)}".strip()
    )


def _child_main(kind: Format, seed: int, numbers: range, place: memoryview, pipe: int) -> None:
    """The life of a child. Never returns."""
    status = 1
    try:
        os.dup2(pipe, 2)
        guard = Guard()
        try:
            status = _SEEDS_FAIL
            guard.warm([kind])
            status = 1
            for number in numbers:
                place[0] = number
                reason = guard.failure(kind, kind.input(seed, number))
                place[1] += guard.accepted
                if reason is not None:
                    os.write(pipe, f"{json.dumps([number, reason])}\n".encode())
            if reason := guard.growth():
                os.write(pipe, f"{json.dumps([numbers[-1], reason])}\n".encode())
            status = 0
        finally:
            guard.close()
    except BaseException:
        os.write(pipe, traceback.format_exc().encode())
    finally:
        sys.stdout.flush()
        os._exit(status)
