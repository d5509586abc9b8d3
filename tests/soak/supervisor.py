"""Runs players and watches over them: one that crashes or hangs is a finding, with its seed and stacks, and is replaced."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.soak.account import Account
from tests.soak.ledger import Ledger
from tests.soak.player import STACKS
from tests.soak.scenario import draw

PATIENCE_S = 90.0
"""A scenario takes a second or two; with spawned workers on a busy machine perhaps twenty."""

_TAIL_LINES = 80
_ROOT = Path(__file__).resolve().parents[2]


class _Player:
    """A player process in a session of its own, so that all it started can be ended together."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seed: int | None = None
        self.deadline_s = 0.0
        self.stderr = tempfile.TemporaryFile("w+b")  # noqa: SIM115  # closed in ``end``
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.player"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.stdout = self.process.stdout
        self.expect_answer()

    def expect_answer(self) -> None:
        self.deadline_s = time.monotonic() + PATIENCE_S

    def give(self, seed: int | None) -> None:
        """The next seed to play, or None: there is none, leave."""
        self.seed = seed
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it crashed: its stdout tells
            if seed is None:
                self.process.stdin.close()
            else:
                self.process.stdin.write(f"{seed}\n")
                self.process.stdin.flush()
        self.expect_answer()

    def stacks(self) -> str:
        """What the player and its descendants are doing, asked with a signal, and from /proc for those that do not answer."""
        lines = []
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error, OSError):
                    wait = Path(f"/proc/{child.pid}/wchan").read_text()
                    lines.append(f"pid {child.pid} {child.name()} {child.status()} in {wait}")
        for send in (
            os.kill,
            os.killpg,
        ):  # the player first: its workers may die of the signal, and it would go on
            with contextlib.suppress(ProcessLookupError):
                send(self.process.pid, STACKS)
            time.sleep(0.5)
        return "\n".join([*lines, self.tail()])

    def tail(self) -> str:
        """The end of what was written to stderr."""
        self.stderr.seek(0)
        return "\n".join(self.stderr.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])

    def end(self) -> int:
        """Kill whatever is left of its session; the player's exit code."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        self.stderr.close()
        self.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        return code


class Supervisor:
    """Keeps ``count`` players busy until the seeds or the time run out. Called on the main thread."""

    def __init__(self, seeds: Iterator[int], ledger: Ledger, count: int) -> None:
        self._seeds = seeds
        self._ledger = ledger
        self._selector = selectors.DefaultSelector()
        self._players: list[_Player] = []
        self._deadline_s = 0.0
        self._started = 0
        self._count = count

    def run(self, seconds: float) -> None:
        """Play for so long. KeyboardInterrupt passes through; everything that was started is ended in any case."""
        self._deadline_s = time.monotonic() + seconds
        try:
            for _ in range(self._count):
                self._start()
            while self._players:
                self._wait()
        finally:
            for player in self._players:
                player.end()
            self._selector.close()

    def _start(self) -> None:
        player = _Player(self._started)
        self._started += 1
        self._players.append(player)
        self._selector.register(player.stdout, selectors.EVENT_READ, player)

    def _wait(self) -> None:
        patience_s = min(player.deadline_s for player in self._players) - time.monotonic()
        for key, _ in self._selector.select(max(0.0, min(patience_s, self._ledger.until_progress_s()))):
            self._heard(key.data, key.data.stdout.readline())
        for player in list(self._players):
            if time.monotonic() > player.deadline_s:
                self._lost(player, "hung", f"no answer for {PATIENCE_S:.0f} s\n{player.stacks()}")
        self._ledger.progress()

    def _heard(self, player: _Player, line: str) -> None:
        if not line:
            if player.seed is not None or player.process.wait() != 0:
                self._lost(player, "crashed", f"exit code {player.process.wait()}\n{player.tail()}")
            else:
                self._remove(player)
            return
        if line.startswith("{"):
            self._ledger.add(Account.from_json(line), player.number)
        time_is_up = time.monotonic() > self._deadline_s
        player.give(None if time_is_up else next(self._seeds, None))

    def _lost(self, player: _Player, kind: str, text: str) -> None:
        account = Account(-1) if player.seed is None else Account(player.seed, draw(player.seed).title())
        account.find(kind, text)
        self._ledger.add(account, player.number)
        self._remove(player)
        if time.monotonic() < self._deadline_s:
            self._start()

    def _remove(self, player: _Player) -> None:
        self._players.remove(player)
        self._selector.unregister(player.stdout)
        player.end()
