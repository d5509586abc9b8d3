"""How facts are gathered: what is repeated, what is given up, and which sandbox is asked. Sandboxes are scripted."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from stoker._tools.doctor import examination, probes
from stoker._tools.doctor.examination import doctor
from stoker._tools.doctor.facts import Missing
from stoker._tools.doctor.facts.samples import ProbeFailure, SampleFacts
from stoker._tools.sandbox import client
from stoker._tools.sandbox.client import Answer
from stoker.errors import TargetError

FINE = SampleFacts(indices=(0,), leaves=())


@dataclass
class Clinic:
    """Answers by the name of the probe, each once; what was asked, and of which sandbox."""

    answers: dict[str, deque[Answer]] = field(default_factory=dict)
    loads: deque[Answer] = field(default_factory=deque)
    asked: list[tuple[str, int, bool, tuple[int, ...]]] = field(default_factory=list)
    opened: int = 0


@pytest.fixture
def clinic(monkeypatch: pytest.MonkeyPatch) -> Clinic:
    clinic = Clinic()

    class Scripted:
        output = "printed"

        def __init__(self, subject: object, *, memory_limit_bytes: int | None) -> None:
            clinic.opened += 1
            self.number = clinic.opened
            self.alive = True

        def load(self, target: str, **_: Any) -> Answer:
            return clinic.loads.popleft() if clinic.loads else Answer(SimpleNamespace(hazards=()))

        def probe(self, module: str, *, avoid: Any, in_fork: bool, **_: Any) -> Answer:
            name = module.removeprefix("stoker._tools.doctor.probes.")
            clinic.asked.append((name, self.number, in_fork, tuple(sorted(avoid))))
            answer = clinic.answers.get(
                name, deque([Answer(SimpleNamespace(kind="dataset", stream=False, assumed=True))])
            )
            told = answer.popleft()
            self.alive = in_fork or told.probe_failure is None
            return told

        def close(self) -> None:
            self.alive = False

    monkeypatch.setattr(client, "SandboxClient", Scripted)
    monkeypatch.setattr(examination, "parts", lambda target: ("data", "train"), raising=False)
    plans = (probes.Plan("target", samples=False), probes.Plan("samples"), probes.Plan("round_trip"))
    monkeypatch.setattr(probes, "PLANS", plans)
    return clinic


def probe_failure(what: str, index: int | None) -> Answer:
    return Answer(probe_failure=ProbeFailure(what, index, "because"))


def test_a_probe_is_repeated_without_the_sample_that_ended_it(clinic: Clinic) -> None:
    clinic.answers["samples"] = deque([probe_failure("died", 2), probe_failure("died", 9), Answer(FINE)])
    told = doctor("data:train", select=["STK412", "STK404"])
    assert [avoid for name, _, _, avoid in clinic.asked if name == "samples"] == [(), (2,), (2, 9)]
    assert [each.index for each in told.facts["samples"].probe_failures] == [2, 9]
    assert [each.where for each in told.findings] == ["dataset[2]", "dataset[9]"]


def test_what_no_sample_survives_is_not_tried_again_by_others(clinic: Clinic) -> None:
    clinic.answers["samples"] = deque([probe_failure("hung", 0), probe_failure("hung", 1)])
    told = doctor("data:train", select=["STK409", "STK411", "STK401"])
    assert [name for name, *_ in clinic.asked] == ["target", "samples", "samples"]
    assert told.facts["round_trip"] == Missing("sample 1 hung: because")
    assert {each.code for each in told.skipped} == {"STK401", "STK409"}


def test_next_to_threads_that_forks_do_not_copy_samples_are_made_by_a_sandbox_of_their_own(
    clinic: Clinic,
) -> None:
    risky = Answer(SimpleNamespace(hazards=(SimpleNamespace(module="polars"),)))
    clinic.loads = deque([risky, risky, risky])
    clinic.answers["samples"] = deque([probe_failure("died", 2), Answer(FINE)])
    clinic.answers["round_trip"] = deque([Answer(failure="no sample could be made to send")])
    told = doctor("data:train", select=["STK409", "STK401"])
    assert clinic.asked == [
        ("target", 1, True, ()),
        ("samples", 2, False, ()),
        ("samples", 3, False, (2,)),
        ("round_trip", 3, False, (2,)),
    ]
    assert told.facts["round_trip"] == Missing("no sample could be made to send")
    assert told.passed == ("STK401",)


def threaded(**loader: Any) -> tuple[Answer, Answer]:
    """What a process with a thread and its target tell of themselves."""
    loaded = SimpleNamespace(hazards=(), python_threads=("feeder",))
    return Answer(loaded), Answer(
        SimpleNamespace(kind="loader", stream=False, loader=SimpleNamespace(engine="torch", **loader))
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_what_hangs_only_in_a_fork_is_told_of_forked_workers_alone(clinic: Clinic, workers: int) -> None:
    loaded, target = threaded(num_workers=workers, start_method="fork")
    clinic.loads = deque([loaded, loaded])
    clinic.answers = {"target": deque([target]), "samples": deque([probe_failure("hung", 0), Answer(FINE)])}
    told = doctor("data:train", select=["STK409", "STK411"])
    assert clinic.asked[1:] == [("samples", 1, True, ()), ("samples", 2, False, ())]
    assert told.facts["samples"] is FINE
    assert told.facts["round_trip"].reason.endswith("in a fork, which has no other threads (feeder)")
    assert [each.where for each in told.findings] == ["dataset[0]"] * (workers > 0)


def test_what_hangs_with_its_threads_too_is_told_whoever_makes_it(clinic: Clinic) -> None:
    loaded, target = threaded(num_workers=0, start_method="fork")
    clinic.loads = deque([loaded, loaded, loaded])
    clinic.answers = {
        "target": deque([target]),
        "samples": deque([probe_failure("hung", 0) for _ in range(3)]),
    }
    clinic.answers["samples"][2] = probe_failure("hung", 1)
    told = doctor("data:train", select=["STK409", "STK411"])
    assert [each.where for each in told.findings] == ["dataset[0]", "dataset[1]"]
    assert told.facts["round_trip"] == Missing("sample 1 hung: because")


def test_a_target_that_loads_only_once_loses_nothing_that_was_found(clinic: Clinic) -> None:
    risky = Answer(SimpleNamespace(hazards=(SimpleNamespace(module="polars"),)))
    clinic.loads = deque([risky, Answer(failure="it is locked")])
    told = doctor("data:train", select=["STK401"])
    assert told.facts["samples"] == Missing("the target could not be loaded again: it is locked")
    clinic.loads = deque([Answer(failure="it is locked", stack="there")])
    with pytest.raises(TargetError, match="it is locked") as raised:
        doctor("data:train", select=["STK401"])
    assert (raised.value.stack, raised.value.output) == ("there", "printed")


def test_without_time_nothing_is_guessed(clinic: Clinic) -> None:
    told = doctor("data:train", select=["STK401"], time_limit_s=0.0)
    assert told.facts["samples"] == Missing("no time was left for it")
    assert (told.passed, [each.code for each in told.skipped]) == ((), ["STK401"])
