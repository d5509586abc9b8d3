"""A session: a sandbox with the loaded target and a time budget. A sandbox that a probe ended is replaced."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from stoker._host import memory_available
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host
from stoker._tools.sandbox.target import parts
from stoker._tools.tune.facts import Target

if TYPE_CHECKING:
    from stoker._tools.sandbox.client import Answer, SandboxClient

PROBES = "stoker._tools.tune.probes"
LOADING_S = 60.0
"""The time that a target may take to load, whatever the budget: without it there is no answer."""
_GRACE_S = 2.0
"""Additional time for a probe to end by itself."""
_OPENINGS = 4
"""The most sandboxes of a session. A target that ends more of them is not usable."""


class ProbeLost(Exception):
    """A probe that reported no fact. The text says why, in a line. ``probe_failure`` is the outside cause, or None."""

    def __init__(self, text: str, probe_failure: Any = None) -> None:
        super().__init__(text)
        self.probe_failure = probe_failure


class TuneSession:
    """Must be closed. ``left_s`` counts down from the budget. Loading uses half of it at most, however long it took."""

    def __init__(
        self,
        target: object,
        *,
        batch_size: int | None,
        budget_s: float,
        step: Callable[[Any], Any] | None = None,
    ) -> None:
        self._began = time.monotonic()
        self._budget_s = budget_s
        self._deadline = self._began + budget_s
        self._target = target
        self._batch_size = batch_size
        self._step = step
        self._sandbox: SandboxClient | None = None
        self._opened = 0
        self._avoid: set[int] = set()
        self._subject: Any = None
        available = memory_available.room_bytes()
        self._limit_bytes = available // 2 if available else None

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self._deadline - time.monotonic()

    @property
    def spent_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    @property
    def share(self) -> float:
        """The spent share of the time."""
        whole = self._deadline - self._began
        return min(1.0, self.spent_s / whole) if whole > 0 else 1.0

    def open(self) -> Target:
        """Load the target. Raises TargetError."""
        answer = self._admit()
        self._deadline = max(self._deadline, time.monotonic() + self._budget_s / 2)
        found: Target = answer.fact
        return found

    def ask(
        self,
        probe: str,
        *,
        limit_s: float,
        within_s: float | None = None,
        trial: Mapping[str, Any] | None = None,
    ) -> Any:
        """The fact that a probe reports, within ``limit_s`` of its last sign of life. Raises ProbeLost."""
        sandbox = self._sandbox
        if sandbox is None or not sandbox.alive:
            if self._opened >= _OPENINGS:
                raise ProbeLost("the target ended too many of the processes that it was tried in")
            from stoker.errors import TargetError

            try:
                self._admit()
            except TargetError as error:
                raise ProbeLost(f"it could not be loaded again: {error}") from error
            sandbox = self._sandbox
            assert sandbox is not None
        answer = sandbox.probe(
            f"{PROBES}.{probe}",
            limit_s=limit_s,
            within_s=max(within_s if within_s is not None else self.left_s, 0.1) + _GRACE_S,
            avoid=self._avoid,
            in_fork=False,
            trial=trial,
        )
        if answer.probe_failure is not None:
            raise ProbeLost(_summary(answer.probe_failure), answer.probe_failure)
        if answer.fact is None:
            raise ProbeLost(answer.failure)
        return answer.fact

    def leave_out(self, index: int) -> bool:
        """Make later probes avoid a sample. False if they do already."""
        new = index not in self._avoid
        self._avoid.add(index)
        return new

    def close(self) -> None:
        """End the sandbox. Idempotent."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.close()

    def _admit(self) -> Answer:
        from stoker._tools.sandbox.client import SandboxClient, refusal

        self.close()
        self._opened += 1
        first = f"{PROBES}.target"
        limit_s = max(LOADING_S, self.left_s)
        if isinstance(self._target, str):
            parts(self._target)
            self._sandbox = SandboxClient(None, memory_limit_bytes=self._limit_bytes)
            answer = self._sandbox.load(
                self._target, first=first, limit_s=limit_s, batch_size=self._batch_size, num_workers=None
            )
        else:
            self._sandbox = SandboxClient(self._made_subject(), memory_limit_bytes=self._limit_bytes)
            answer = self._sandbox.probe(first, limit_s=limit_s, in_fork=False)
        if answer.fact is None:
            name = self._target if isinstance(self._target, str) else type(self._target).__name__
            raise refusal(name, answer, self._sandbox.output)
        return answer

    def _made_subject(self) -> Any:
        from stoker._tools.sandbox.target import subject_of

        if self._subject is None:
            self._subject = subject_of(
                self._target, name=type(self._target).__name__, batch_size=self._batch_size
            )
        kept = {} if self._step is None else {"step": self._step}
        return replace(self._subject, kept=kept)


class Prober(Protocol):
    """The method that runs a probe."""

    def ask(
        self,
        probe: str,
        *,
        limit_s: float,
        within_s: float | None = None,
        trial: Mapping[str, Any] | None = None,
    ) -> Any: ...


def find_step(session: Prober, step: str) -> None:
    """Raise TargetError if there is no such step function, before time is spent on anything else."""
    from stoker.errors import TargetError

    try:
        session.ask("demand", limit_s=LOADING_S, within_s=LOADING_S, trial={"step": step, "look": True})
    except ProbeLost as error:
        raise TargetError(str(error)) from error


def ask_host(session: Prober, ranks: int | None) -> Host:
    """The machine as the target's process sees it, shared by so many ranks. Raises ProbeLost."""
    trial = {} if ranks is None else {"ranks": ranks}
    found: Host = session.ask("host", limit_s=10.0, within_s=10.0, trial=trial)
    return found


def block_trial(
    setting: Setting, demand: Demand, step: str | bool, *, seconds: float, least: int, limit_s: float
) -> dict[str, Any]:
    """The input of the probe of a block. ``step``: the name of the user's function, or whether the sandbox has it."""
    burst = max(1, demand.burst)
    return {
        "setting": setting.as_dict(),
        "seconds": seconds,
        "least": least,
        "step_ns": demand.step_ns // burst,
        "step_cpu_ns": demand.cpu_ns // burst,
        "burst": burst,
        "step": step,
        "limit_s": limit_s,
    }


def _summary(probe_failure: Any) -> str:
    where = "" if probe_failure.index is None else f" at sample {probe_failure.index}"
    said = {"hung": "it hung", "died": "it crashed", "ate memory": "it took too much memory"}[
        probe_failure.what
    ]
    return f"{said}{where}: {probe_failure.text}"
