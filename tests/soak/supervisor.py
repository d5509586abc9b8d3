"""Runs players and watches over them: one that crashes or hangs is a finding, with its seed and stacks, and is replaced."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import psutil

from tests.soak.account import Account
from tests.soak.legs import LEGS
from tests.soak.player import STACKS
from tests.soak.soak_totals import SoakTotals

START_S = 400.0
"""A player imports torch, or has the fake accelerator compiled, on a machine that may be busy."""

SEEDS = 2**31
_STINT_S = (4.0, 120.0)
_STINTS = 3
_TAIL_LINES = 80
_ROOT = Path(__file__).resolve().parents[2]


class Plan:
    """Which leg is next, and with which seeds. Legs take turns by what they had so far of their shares."""

    def __init__(
        self, legs: Sequence[str], seed: int, *, only: tuple[str, Sequence[int]] | None = None
    ) -> None:
        self._legs = list(legs)
        self._dice = Random(seed)
        self._used_s = dict.fromkeys(self._legs, 0.0)
        self._only = None if only is None else (only[0], iter(only[1]))
        self._runs: set[str] = set()
        self._over = False

    def next_leg(self, left_s: float) -> str | None:
        """The leg that is due and has the time; None when there is none."""
        if self._only is not None:
            return self._only[0] if left_s > 0 and not self._runs and not self._over else None
        able = [
            leg
            for leg in self._legs
            if LEGS[leg].takes_s < left_s and (leg not in self._runs or LEGS[leg].takes_s < _STINT_S[0])
        ] or [leg for leg in self._legs if LEGS[leg].takes_s < left_s]
        return min(able, key=lambda leg: self._used_s[leg] / LEGS[leg].share, default=None)

    def turn_s(self, leg: str, total_s: float) -> float:
        """How long a player stays with this leg."""
        if self._only is not None:
            return total_s
        part = LEGS[leg].share / sum(LEGS[each].share for each in self._legs)
        return min(max(_STINT_S[0], total_s * part / _STINTS), _STINT_S[1])

    def next_seed(self) -> int | None:
        """The seed of the next scenario; None when there is none."""
        if self._only is None:
            return self._dice.randrange(SEEDS)
        seed = next(self._only[1], None)
        self._over = seed is None
        return seed

    def begun(self, leg: str) -> None:
        """A player of this leg starts."""
        self._runs.add(leg)

    def used(self, leg: str, seconds: float) -> None:
        """A player of this leg is done, after so long."""
        self._runs.discard(leg)
        self._used_s[leg] += seconds

    def leave_out(self, leg: str) -> None:
        """This leg cannot be played here."""
        if leg in self._legs:
            self._legs.remove(leg)


class _Player:
    """A player process in a session of its own, with a folder of its own for temporary files."""

    def __init__(self, number: int, leg: str, turn_s: float) -> None:
        self.number = number
        self.leg = leg
        self.seed: int | None = None
        self.deadline_s = time.monotonic() + START_S
        self.began_s = time.monotonic()
        self.turn_s = turn_s
        self.stderr = tempfile.TemporaryFile("w+b")  # noqa: SIM115  # closed in ``end``
        self.folder = tempfile.mkdtemp(prefix="soak-player-")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.player", leg],
            cwd=_ROOT,
            env={
                **os.environ,
                "TMPDIR": self.folder,
                "STOKER_PROFILES": "off",
                "OPENBLAS_THREAD_TIMEOUT": "4",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self.stdout = self.process.stdout
        self._said = b""

    def said(self) -> tuple[list[str], bool]:
        """Whole lines on its stdout, and whether that has ended. Others may write there too: workers, frameworks."""
        ended = False
        with contextlib.suppress(BlockingIOError):
            while found := os.read(self.stdout.fileno(), 1 << 16):
                self._said += found
            ended = True
        *lines, self._said = self._said.split(b"\n")
        return [line.decode(errors="replace") for line in lines], ended

    def give(self, seed: int | None) -> None:
        """The next seed to play, or None: there is none, leave."""
        self.seed = seed
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it crashed: its stdout tells
            if seed is None:
                self.process.stdin.close()
            else:
                self.process.stdin.write(f"{seed}\n".encode())
                self.process.stdin.flush()
        self.deadline_s = time.monotonic() + LEGS[self.leg].patience_s

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
        shutil.rmtree(self.folder, ignore_errors=True)
        return code


class Supervisor:
    """Keeps ``count`` players busy until the plan or the time runs out. Called on the main thread."""

    def __init__(self, plan: Plan, totals: SoakTotals, count: int) -> None:
        self._plan = plan
        self._totals = totals
        self._selector = selectors.DefaultSelector()
        self._players: list[_Player] = []
        self._deadline_s = 0.0
        self._total_s = 0.0
        self._started = 0
        self._count = count

    def run(self, seconds: float) -> None:
        """Play for so long. KeyboardInterrupt passes through; everything that was started is ended in any case."""
        self._total_s = seconds * self._count
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
        leg = self._plan.next_leg(self._deadline_s - time.monotonic())
        if leg is None:
            return
        player = _Player(self._started, leg, self._plan.turn_s(leg, self._total_s))
        self._plan.begun(leg)
        self._started += 1
        self._players.append(player)
        self._selector.register(player.stdout, selectors.EVENT_READ, player)

    def _wait(self) -> None:
        patience_s = min(player.deadline_s for player in self._players) - time.monotonic()
        for key, _ in self._selector.select(max(0.0, min(patience_s, self._totals.until_progress_s()))):
            self._read(key.data)
        for player in list(self._players):
            if time.monotonic() > player.deadline_s:
                self._lost(player, "hung", f"no answer for a long time\n{player.stacks()}")
        self._totals.progress()

    def _read(self, player: _Player) -> None:
        lines, ended = player.said()
        for line in lines:
            if line.startswith('{"unable"'):
                self._totals.leave_out(player.leg, json.loads(line)["unable"])
                self._plan.leave_out(player.leg)
                player.give(None)
            elif line.startswith('{"seed"'):
                self._totals.add(Account.from_json(line), player.number)
                self._go_on(player)
            elif line == "ready":
                player.began_s = time.monotonic()
                self._go_on(player)
        if ended:
            if player.seed is not None or player.process.wait() != 0:
                self._lost(player, "crashed", f"exit code {player.process.wait()}\n{player.tail()}")
            else:
                self._remove(player)
                self._start()

    def _go_on(self, player: _Player) -> None:
        now_s = time.monotonic()
        over = now_s > player.began_s + player.turn_s or now_s + LEGS[player.leg].takes_s > self._deadline_s
        player.give(None if over else self._plan.next_seed())

    def _lost(self, player: _Player, kind: str, text: str) -> None:
        account = Account(-1 if player.seed is None else player.seed, leg=player.leg)
        account.find(kind, text)
        self._totals.add(account, player.number)
        self._remove(player)
        self._start()

    def _remove(self, player: _Player) -> None:
        self._players.remove(player)
        self._plan.used(player.leg, time.monotonic() - player.began_s)
        self._selector.unregister(player.stdout)
        player.end()
