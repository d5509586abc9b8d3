"""Runs the trials of ``stoker doctor --bisect``, each in a child process with limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from stoker._tools.doctor.bisection.procedure import (
    BisectionSetting,
    BisectionTrial,
    Conclusion,
    conclude,
    procedure,
)
from stoker._tools.doctor.catalogue import check_of
from stoker._tools.doctor.explain import explain
from stoker._tools.doctor.facts.samples import ProbeFailure
from stoker._tools.doctor.facts.trial import BisectionBaseline, BisectionOutcome
from stoker._tools.sandbox.client import Answer, SandboxClient, refusal

_TRIAL = "stoker._tools.doctor.probes.trial"
_LOAD_S = 60.0
_LEAST_S = 12.0
_SPAWN_S = 15.0
"""What interpreters with torch may take to start on a busy machine, beside the trial itself."""
_TIMES = 5.0
_MOST_PRINTED = 6000
_FAILURES = {"hung": "hang", "died": "killed", "ate memory": "memory"}
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Bisection:
    """All trials and what they come down to. ``code`` is that of the failure, None when it is not known or there is none."""

    subject: str
    own: BisectionBaseline | None
    trials: tuple[BisectionTrial, ...]
    conclusion: Conclusion
    code: str | None = None
    advice: str = ""
    interrupted: bool = False
    cut_short: str = ""
    """Why trials are missing; "" when they are all there."""


def bisect(
    target: str,
    *,
    batch_size: int | None = None,
    num_workers: int | None = None,
    time_limit_s: float = 300.0,
    memory_limit_bytes: int | None = None,
    progress: Progress | None = None,
) -> Bisection:
    """Narrow down what makes a loader fail. Takes seconds per trial; one that hangs takes its whole limit, 12 s and more.

    Raises TargetError when the target cannot be loaded. Ctrl-C ends it with the trials made until then.
    """
    bench = _TrialRunner(target, batch_size, num_workers, memory_limit_bytes, time.monotonic() + time_limit_s)
    trials: list[BisectionTrial] = []
    own: BisectionBaseline | None = None
    interrupted, cut_short = False, ""
    try:
        own = bench.look()
        steps = procedure(own, threads=bench.faithful)
        setting = next(steps, None)
        while setting is not None:
            if progress is not None:
                progress(_setting_text(setting), len(trials), max(len(trials) + 1, _expected(own)))
            outcome = bench.outcome(setting, trials)
            if outcome is None:
                cut_short = f"the time limit of {time_limit_s:.0f} s came first"
                break
            trials.append(BisectionTrial(setting, outcome))
            try:
                setting = steps.send(outcome)
            except StopIteration:
                setting = None
    except KeyboardInterrupt:
        interrupted = True
    finally:
        bench.close()
    found = conclude(own, trials) if own is not None else Conclusion("Nothing was tried.")
    code, advice = _explained(found.failure)
    return Bisection(target, own, tuple(trials), found, code, advice, interrupted, cut_short)


class _TrialRunner:
    """Where trials are made: forks of a process that has loaded the target, or a process each where forks would hide the cause."""

    def __init__(
        self, target: str, batch_size: int | None, num_workers: int | None, limit: int | None, deadline: float
    ) -> None:
        self._target = target
        self._arguments = {"batch_size": batch_size, "num_workers": num_workers}
        self._limit_bytes = limit
        self._deadline = deadline
        self._sandboxes: list[SandboxClient] = []
        self._method = ""
        self.faithful = False
        """Whether the target's process has threads, which only a process of its own shows to its workers."""

    def look(self) -> BisectionBaseline:
        """Load the target, and tell what there is to change."""
        sandbox, process = self._load()
        self.faithful = bool(process.hazards or process.python_threads)
        answer = sandbox.probe(_TRIAL, limit_s=_LOAD_S, trial={"look": True})
        if not isinstance(answer.fact, BisectionBaseline):
            raise refusal(self._target, answer, sandbox.output)
        self._method = answer.fact.method
        return answer.fact

    def outcome(self, setting: BisectionSetting, before: list[BisectionTrial]) -> BisectionOutcome | None:
        """Make one trial; None when there is no time left for it."""
        method = setting.method or self._method
        alike = [each for each in before if each.outcome.ok and each.setting.method == setting.method]
        slowest_s = max((each.outcome.seconds for each in alike), default=0.0)
        limit_s = _LEAST_S + _TIMES * slowest_s + (_SPAWN_S if method != "fork" else 0.0)
        left_s = self._deadline - time.monotonic()
        if left_s < 2.0 or (before and left_s < limit_s / 2):
            return None
        sandbox = self._sandboxes[-1]
        if self.faithful or not sandbox.alive:
            sandbox.close()
            sandbox, _ = self._load()
        before_it = sandbox.output
        asked = {
            "workers": setting.workers,
            "method": setting.method,
            "without": list(setting.without),
            "one_thread": setting.one_thread,
            "engine": setting.engine,
        }
        answer = sandbox.probe(_TRIAL, limit_s=min(limit_s, left_s), trial=asked, in_fork=not self.faithful)
        said = sandbox.output
        printed = said.removeprefix(before_it) if said.startswith(before_it) else said
        return replace(_outcome(answer), printed=printed[-_MOST_PRINTED:])

    def close(self) -> None:
        """End all that was started."""
        for each in self._sandboxes:
            each.close()

    def _load(self) -> tuple[SandboxClient, Any]:
        sandbox = SandboxClient(None, memory_limit_bytes=self._limit_bytes)
        self._sandboxes.append(sandbox)
        limit_s = max(1.0, min(_LOAD_S, self._deadline - time.monotonic()))
        answer = sandbox.load(
            self._target, first="stoker._tools.doctor.probes.process", limit_s=limit_s, **self._arguments
        )
        if answer.fact is None:
            raise refusal(self._target, answer, sandbox.output)
        return sandbox, answer.fact


def _outcome(answer: Answer) -> BisectionOutcome:
    if isinstance(answer.fact, BisectionOutcome):
        return answer.fact
    probe_failure = answer.probe_failure or ProbeFailure("died", None, answer.failure)
    where = "" if probe_failure.index is None else f", at sample {probe_failure.index}"
    return BisectionOutcome(
        _FAILURES.get(probe_failure.what, "killed"),
        text=probe_failure.text + where,
        stack=probe_failure.stack,
    )


def _explained(failure: BisectionTrial | None) -> tuple[str | None, str]:
    """The code and the fix of what went wrong, as far as it is known."""
    if failure is None:
        return None, ""
    outcome = failure.outcome
    for text in (outcome.text if outcome.what == "error" else "", outcome.printed):
        with suppress(Exception):  # what explains a failure must not be one
            found = explain(text).finding if text.strip() else None
            if found is not None:
                return found.code, found.advice
    known = {("hang", False): "STK411", ("hang", True): "STK804", ("killed", False): "STK412"}
    check = check_of(known.get((outcome.what, failure.setting.workers > 0), ""))
    return (check.code, check.sections["Fix"].partition("\n\n")[0]) if check else (None, "")


def _setting_text(setting: BisectionSetting) -> str:
    parts = [f"{setting.workers} workers", setting.method or "", setting.change]
    return ", ".join(filter(None, parts))


def _expected(own: BisectionBaseline) -> int:
    return 6 + len(own.parts)
