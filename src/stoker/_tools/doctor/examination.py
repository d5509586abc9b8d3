"""``stoker.doctor``: gathers facts, runs the checks, and returns what they found."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stoker._host import memory_available
from stoker._record.call_site import place
from stoker._tools.doctor import probes
from stoker._tools.doctor.catalogue import selected
from stoker._tools.doctor.diagnosis import Diagnosis, diagnose
from stoker._tools.doctor.facts import Missing
from stoker._tools.doctor.facts.host import machine
from stoker._tools.doctor.facts.probe_failures import ProbeFailure, ProbeFailures
from stoker._tools.sandbox.held import HeldSandbox
from stoker._tools.sandbox.target import parts
from stoker.errors import TargetError

if TYPE_CHECKING:
    from stoker._tools.sandbox.client import Answer, SandboxClient
    from stoker._tools.sandbox.subject import Subject

Progress = Callable[[str, int, int], None]
_REPEATS = {"died": 2, "hung": 1, "ate memory": 1}
"""How often a probe is repeated without the sample that ended it, by what that costs."""
_NOT_ASKED = "no Ray cluster was named: --ray"
_CLUSTER_S = 20.0
"""For the nodes of a Ray cluster, at least: a node starts a process for the question."""
_IMPLIED = {"probe_failures": ("samples",)}
"""What has to be gathered for a fact that is a by-product."""


def doctor(
    target: object = None,
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    batch_size: int | None = None,
    num_workers: int | None = None,
    time_limit_s: float = 60.0,
    memory_limit_bytes: int | None = None,
    ray: str | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Examine a dataset or a loader, or only this machine.

    User code runs in child processes with limits. Ctrl-C ends the examination at once, with the findings so far:
    ``interrupted`` is then true.

    Args:
        target: The object, or its location: "package.module:object", "path/to/file.py:object". Or a sandbox that a script has
            forked of itself.
        select: Codes, beginnings of codes and names of the checks to make. Default: all.
        ignore: The same, for checks to leave out.
        batch_size: Replaces the loader's own.
        num_workers: Replaces the loader's own.
        time_limit_s: Seconds for the whole examination.
        memory_limit_bytes: Memory that a child process may use. None: half of what is available.
        ray: The address of a Ray cluster that is to run the loader's workers, or "auto". Its nodes are asked, too.
        progress: Called with the name of the next fact, how many were gathered, and how many there will be.

    Raises:
        TargetError: The target cannot be loaded.
        ValueError: A code does not exist.
    """
    checks = selected(select, ignore)
    needed = {name for check in checks for name in (*check.needs, *check.welcomes)} - {"cluster"}
    for name in tuple(needed):
        needed.update(_IMPLIED.get(name, ()))
    if ray is not None:
        needed.update(("cluster", "paths"))
    if target is None:
        facts = {"machine": machine.gather(), **_without_target(needed)}
        facts["cluster"] = _cluster(ray, facts, time_limit_s)
        return diagnose(checks, facts)
    at = place(1)
    needed.add("target")
    visit = _Examination(needed, progress, time.monotonic() + time_limit_s, memory_limit_bytes)
    interrupted = False
    try:
        visit.gather(target, batch_size, num_workers, at[0] if at else None)
        visit.ask_cluster(ray)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        visit.close()
    facts = visit.facts
    facts.setdefault("cluster", Missing(_NOT_ASKED))
    for name in needed - facts.keys():
        facts[name] = Missing("interrupted")
    return replace(diagnose(checks, facts, subject=_described(target, facts)), interrupted=interrupted)


class _Examination:
    """One examination on its way. ``facts`` has what is known so far."""

    def __init__(
        self, needed: set[str], progress: Progress | None, deadline: float, limit_bytes: int | None
    ) -> None:
        self.facts: dict[str, Any] = {}
        self._plans = [plan for plan in probes.PLANS if plan.name in needed]
        self._progress = progress
        self._done = 0
        self._deadline = deadline
        available = memory_available.room_bytes()
        self._limit_bytes = limit_bytes if limit_bytes is not None else available // 2 if available else None
        self._sandboxes: list[SandboxClient] = []
        self._clients: dict[bool, SandboxClient] = {}
        self._avoid: set[int] = set()
        self._wrecked = ""
        self._probe_failures: list[tuple[str, ProbeFailure]] = []
        self._open: Callable[[], SandboxClient]

    def gather(
        self, target: object, batch_size: int | None, num_workers: int | None, file: str | None
    ) -> None:
        """Fill ``facts``."""
        self._tell("machine")
        self.facts["machine"] = machine.gather()
        self._tell("process")
        if isinstance(target, str):
            parts(target)
            self._open = lambda: self._loaded(target, batch_size=batch_size, num_workers=num_workers)
        elif isinstance(target, HeldSandbox):
            self.facts["process"] = target.process
            self._open = lambda: self._taken(target)
        else:
            from stoker._tools.doctor.probes import process
            from stoker._tools.sandbox.target import subject_of

            subject = subject_of(
                target,
                name=type(target).__name__,
                batch_size=batch_size,
                num_workers=num_workers,
                file=file,
            )
            self.facts["process"] = process.probe(subject)
            self._open = lambda: self._admit(subject)
        self._ready(alone=False)
        hazards = tuple(each.module for each in getattr(self.facts.get("process"), "hazards", ()))
        try:
            self._probe(hazards, can_load=isinstance(target, str))
        finally:
            self.facts["probe_failures"] = ProbeFailures(tuple(self._probe_failures))
        self._tell("")

    def ask_cluster(self, address: str | None) -> None:
        """Ask the nodes of a Ray cluster, with what the probes know. Without an address, note why there is no answer."""
        self.facts["cluster"] = _cluster(address, self.facts, self._deadline - time.monotonic())

    def close(self) -> None:
        """End all sandboxes."""
        for each in self._sandboxes:
            each.close()

    def _probe(self, hazards: tuple[str, ...], *, can_load: bool) -> None:
        for plan in self._plans:
            self._tell(plan.name)
            if not importlib.util.find_spec(f"{probes.__name__}.{plan.name}"):
                self.facts[plan.name] = Missing("no probe gathers it yet")
            elif plan.samples and self._wrecked:  # it would fare no better, and take as long
                self.facts[plan.name] = Missing(self._wrecked)
            else:
                # Samples that are made in a fork of a process with such threads may hang where training would not.
                alone = plan.samples and bool(hazards) and can_load
                try:
                    self._gather(plan, alone=alone, hazards=hazards, can_load=can_load)
                except TargetError as error:  # it was loaded once
                    self.facts[plan.name] = Missing(f"the target could not be loaded again: {error}")

    def _ready(self, *, alone: bool) -> SandboxClient:
        """A sandbox that lives: the one that forks its probes, or the one that runs them alone."""
        found = self._clients.get(alone)
        if found is None or not found.alive:
            found = self._clients[alone] = self._open()
        return found

    def _gather(self, plan: probes.Plan, *, alone: bool, hazards: tuple[str, ...], can_load: bool) -> None:
        mine: list[ProbeFailure] = []
        while True:
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                self.facts[plan.name] = Missing("no time was left for it")
                break
            within_s = min(2 * plan.limit_s, left_s)
            answer = self._ready(alone=alone).probe(
                f"{probes.__name__}.{plan.name}",
                limit_s=plan.limit_s,
                within_s=within_s,
                avoid=self._avoid,
                in_fork=not alone,
                calm=plan.name != "worker",  # which is to see the pools as they are
            )
            if answer.probe_failure is None:
                self.facts[plan.name] = _fact(plan.name, answer, mine)
                break
            probe_failure = answer.probe_failure
            if probe_failure.what == "hung" and hazards and not alone:
                self.facts[plan.name] = Missing(
                    f"it hung in a fork of this process, which threads of {', '.join(hazards)} do not survive"
                )
                break
            if probe_failure.what == "hung" and plan.name == "samples" and not alone and self._threads:
                self._hung_in_fork(plan, probe_failure, can_load=can_load)
                break
            mine.append(probe_failure)
            self._probe_failures.append((plan.name, probe_failure))
            self.facts[plan.name] = Missing(_summary(probe_failure))
            if (
                probe_failure.index is None
                or probe_failure.index in self._avoid
                or len(mine) > _REPEATS[probe_failure.what]
            ):
                if plan.name == "samples":
                    self._wrecked = _summary(probe_failure)
                break
            self._avoid.add(probe_failure.index)

    @property
    def _threads(self) -> tuple[str, ...]:
        """Python threads that a fork of the target's process does not have."""
        return getattr(self.facts.get("process"), "python_threads", ())

    def _hung_in_fork(self, plan: probes.Plan, probe_failure: ProbeFailure, *, can_load: bool) -> None:
        """A sample hung in a fork, and threads that it may have waited for were not there: what does it do where they are?

        Whether forked workers would hang is then known, and all other probes fork: they are left out.
        """
        if can_load:
            self._gather(plan, alone=True, hazards=(), can_load=True)
            if self._wrecked or isinstance(self.facts[plan.name], Missing):
                return  # it hangs there too: that has been told
        probe_failure = replace(probe_failure, lacking=self._threads)
        self._wrecked = f"{_summary(probe_failure)} in a fork, which has no other threads ({', '.join(self._threads[:3])})"
        self.facts.setdefault(plan.name, Missing(self._wrecked))
        loader = getattr(self.facts.get("target"), "loader", None)
        if loader is not None and loader.num_workers and loader.start_method == "fork":
            self._probe_failures.append((plan.name, probe_failure))

    def _loaded(self, target: str, **arguments: Any) -> SandboxClient:
        sandbox = self._admit(None)
        limit_s = max(1.0, self._deadline - time.monotonic())
        answer = sandbox.load(target, first=f"{probes.__name__}.process", limit_s=limit_s, **arguments)
        if answer.fact is None:
            from stoker._tools.sandbox.client import refusal

            raise refusal(target, answer, sandbox.output)
        self.facts.setdefault("process", answer.fact)
        return sandbox

    def _taken(self, held: HeldSandbox) -> SandboxClient:
        if self._sandboxes:
            raise TargetError("its process has ended, and there is only one with this loader")
        return self._admit(held)

    def _admit(self, subject: Subject | HeldSandbox | None) -> SandboxClient:
        from stoker._tools.sandbox.client import SandboxClient  # with psutil: the machine alone needs neither

        sandbox = SandboxClient(subject, memory_limit_bytes=self._limit_bytes)
        self._sandboxes.append(sandbox)
        return sandbox

    def _tell(self, name: str) -> None:
        if self._progress is not None:
            self._progress(name, self._done, len(self._plans) + 2)
        self._done += 1


def _cluster(address: str | None, facts: Mapping[str, Any], left_s: float) -> Any:
    """The fact about a Ray cluster. ``left_s`` bounds it, but the nodes get some seconds in any case."""
    if address is None:
        return Missing(_NOT_ASKED)
    from stoker._tools.doctor.instruments.ray_cluster import ask_cluster

    return ask_cluster(address, getattr(facts.get("paths"), "paths", ()), max(_CLUSTER_S, left_s))


def _fact(name: str, answer: Answer, probe_failures: list[ProbeFailure]) -> Any:
    if answer.fact is None:
        return Missing(answer.failure)
    if name == "samples" and probe_failures:
        return replace(answer.fact, probe_failures=tuple(probe_failures))
    return answer.fact


def _summary(probe_failure: ProbeFailure) -> str:
    where = "the probe" if probe_failure.index is None else f"sample {probe_failure.index}"
    return f"{where} {'hung' if probe_failure.what == 'hung' else probe_failure.what}: {probe_failure.text}"


def _without_target(needed: Iterable[str]) -> dict[str, Any]:
    return {name: Missing("no target was given") for name in needed if name != "machine"}


def _described(target: object, facts: dict[str, Any]) -> str:
    told = facts.get("target")
    name = (
        target
        if isinstance(target, str)
        else target.name
        if isinstance(target, HeldSandbox)
        else type(target).__name__
    )
    if told is None or isinstance(told, Missing):
        return name
    if told.kind == "dataset":
        return f"{name} (a {'stream' if told.stream else 'dataset'})"
    return f"{name} (a DataLoader of {'torch' if told.loader.engine == 'torch' else 'stoker'}'s)"
