"""Starts the processes of a round and measures them strictly one after the other.

A heat is one round of one case: the left loader, the right loader and, where the case asks, an inline
process alone and as many inline processes at once as the case has workers. They run in a field, a set of
fresh processes, started together because importing torch takes longer than many a round. A full run has a
field per heat; a quick one shares a field between the cases of a round. The order of turns is shuffled.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks.entries import Case, Micro
from benchmarks.measure import Measurement

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 120.0


class RoundCrashed(Exception):
    """A round's process failed, hung or printed something else; the message ends with what it wrote."""


@dataclass(frozen=True)
class Heat:
    """The measurements of one round of one case; ``together`` holds the inline processes that ran at once."""

    left: Measurement
    right: Measurement
    left_first: bool
    inline: Measurement | None = None
    together: tuple[Measurement, ...] = ()


class RoundProcess:
    """One ``benchmarks.round``, started on construction; ``close`` it, whatever happened."""

    def __init__(self, side: str, quick: bool) -> None:
        command = [sys.executable, "-m", "benchmarks.round", "--side", side]
        self.side = side
        self._ready = False
        with tempfile.NamedTemporaryFile(prefix="bench-", delete=False) as errors:
            self._errors = Path(errors.name)
            # A session of its own: a hung round is ended together with its workers.
            self._process = subprocess.Popen(
                [*command, "--quick"] if quick else command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                start_new_session=True,
            )

    def await_ready(self) -> None:
        """Block until the process has imported everything; returns at once the second time."""
        if not self._ready and self._read_line() != "ready":
            raise self._crash()
        self._ready = True

    def start(self, case: str) -> None:
        """Let it measure ``case``."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{case}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._crash() from None

    def result(self) -> Measurement:
        """Block until it has measured."""
        line = self._read_line()
        if not line.startswith("{"):
            raise self._crash()
        return Measurement(**json.loads(line))

    def finish(self) -> None:
        """Let it end by itself; a loader that cannot be left behind cleanly is a crash, too."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise self._crash() from None
        if code != 0:
            raise self._crash()

    def close(self) -> None:
        """End the process and whatever it started; safe at any point."""
        self._kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                stream.close()
        self._errors.unlink(missing_ok=True)

    def _read_line(self) -> str:
        """Return the next line, or an empty one when the process ended or did not answer in time."""
        stream = self._process.stdout
        assert stream is not None
        return stream.readline().decode().strip() if self._output_waits(TIMEOUT_S) else ""

    def _output_waits(self, timeout_s: float = 0.0) -> bool:
        """Whether there is output, or its end, to read."""
        stream = self._process.stdout
        assert stream is not None
        return bool(select.select([stream], [], [], timeout_s)[0])

    def _kill(self) -> int:
        # No such group: it has ended, and so have its workers.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def _crash(self) -> RoundCrashed:
        code = self._process.poll()
        if code is None and self._output_waits():
            # Its output has ended: it is on its way out, and the exit code is worth a moment.
            try:
                code = self._process.wait(5)
            except subprocess.TimeoutExpired:
                code = None
        reason = f"gave no answer within {TIMEOUT_S:.0f} s" if code is None else f"ended with code {code}"
        self._kill()
        tail = self._errors.read_text(errors="replace")[-2000:].strip()
        return RoundCrashed(f"the {self.side} process {reason}\n{tail}")


class Field:
    """The processes a heat needs, kept for as long as the ``with`` block lasts."""

    def __init__(self, sides: tuple[str, ...], inlines: int, quick: bool) -> None:
        self.loaders = [RoundProcess(side, quick) for side in sides]
        self.inlines = [RoundProcess("inline", quick) for _ in range(inlines)]

    def __enter__(self) -> Field:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                for process in self._processes():
                    process.finish()
        finally:
            for process in self._processes():
                process.close()

    def _processes(self) -> list[RoundProcess]:
        return [*self.loaders, *self.inlines]

    def heat(self, case: Case, left_first: bool, rng: random.Random) -> Heat:
        """Measure one round of a duel. Raises RoundCrashed when any process fails; the field is then over."""
        left, right = self.loaders
        turns: dict[str, list[RoundProcess]] = {"left": [left], "right": [right]}
        order = ["left", "right"] if left_first else ["right", "left"]
        if case.needs_inline:
            turns["inline"] = self.inlines[:1]
            if len(self.inlines) == case.workers:
                turns["together"] = self.inlines
            for extra in list(turns)[2:]:
                order.insert(rng.randrange(len(order) + 1), extra)
        for process in self._processes():
            process.await_ready()
        found = {turn: _take_turn(turns[turn], case.name) for turn in order}
        return Heat(
            left=found["left"][0],
            right=found["right"][0],
            left_first=left_first,
            inline=found["inline"][0] if "inline" in found else None,
            together=tuple(found.get("together", ())),
        )

    def micro(self, entry: Micro) -> Measurement:
        """Measure a cost that needs no loader."""
        for process in self._processes():
            process.await_ready()
        return _take_turn(self.inlines[:1], entry.name)[0]


def _take_turn(processes: list[RoundProcess], case: str) -> list[Measurement]:
    """Measure in all ``processes`` at once."""
    for process in processes:
        process.start(case)
    return [process.result() for process in processes]
