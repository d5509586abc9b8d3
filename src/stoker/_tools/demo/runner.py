"""Runs the acts in order, each with its share of the time. An act that fails is reported, and the others go on."""

from __future__ import annotations

import importlib
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, cast

from stoker._host.cpus import cpus
from stoker._host.private_files import temporary_base
from stoker._tools.demo import record
from stoker._tools.demo.act import Act, ActContext, Tell
from stoker._tools.demo.other_load import OtherLoad

ACTS = ("scaling", "gap", "cache", "memory", "killed", "doctor", "tuner", "profile", "ray")
"""By name, in their order: modules of ``_tools.demo.acts``."""

ASKED_FOR = frozenset({"ray"})
"""Acts that run only when they are named: they need a package of their own, and start servers."""

_LIMIT_S = (26.0, 150.0)
"""All acts together, quick and whole: the rest of 40 s and 3 minutes is for starting, and for the report."""
_LEAST = 0.6
"""Of its time, that an act gets however late it is: with less it would show nothing, and the demo takes longer than it should."""


def act(name: str) -> Act:
    """The act of this name. Raises KeyError when there is none."""
    if name not in ACTS:
        raise KeyError(name)
    return cast(Act, importlib.import_module(f"stoker._tools.demo.acts.{name}"))


def known() -> dict[str, Act]:
    """All acts."""
    return {name: act(name) for name in ACTS}


def perform(
    acts: Mapping[str, Act], *, quick: bool, tell: Tell, limit_s: float | None = None
) -> dict[str, Any]:
    """Run these acts and give the demo's record. Main thread. Ctrl-C ends it with what is done so far."""
    began = time.monotonic()
    limit_s = limit_s or _LIMIT_S[0 if quick else 1]
    wanted_s = {name: each.SECONDS[0 if quick else 1] for name, each in acts.items()}
    found = record.fresh(quick)
    counted = OtherLoad()
    with (
        suppress(KeyboardInterrupt),
        _noting_ctrl_c(found),
        tempfile.TemporaryDirectory(prefix="stoker-demo-", dir=temporary_base()) as folder,
    ):
        for number, (name, each) in enumerate(acts.items()):
            before_s, after_s = _split(list(wanted_s.values()), number)
            left_s = limit_s - (time.monotonic() - began)
            stage = ActContext(
                quick,
                cpus().usable,
                folder,
                _scaled_progress(tell, each.TITLE, before_s, wanted_s[name], sum(wanted_s.values())),
                wanted_s[name] * max(_LEAST, min(1.0, left_s / after_s)),
            )
            _perform(name, each, stage, found)
            if found["interrupted"]:
                break
    found["seconds"] = time.monotonic() - began
    found["others"] = counted.share()
    found["machine"] = record.machine_facts()  # with the versions of what was imported meanwhile
    return found


@contextmanager
def _noting_ctrl_c(found: dict[str, Any]) -> Iterator[None]:
    """Ctrl-C raises as ever, and is noted: the tuner makes the best of it and goes on, and finalizers lose it."""

    def interrupted(number: int, frame: FrameType | None) -> None:
        found["interrupted"] = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _perform(name: str, act: Act, stage: ActContext, found: dict[str, Any]) -> None:
    """One act, into the record."""
    began = time.monotonic()
    result, failure = None, None
    try:
        stage.tell("", 0.0)
        # Too many workers are tried on purpose: that loaders warn of them is no news here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = act.run(stage)
    except KeyboardInterrupt:
        found["interrupted"] = True
        failure = "interrupted"
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    found["acts"][name] = record.performed(act.TITLE, time.monotonic() - began, result, failure)


def _split(seconds: Sequence[float], number: int) -> tuple[float, float]:
    """What the acts before this one take, and this one with those behind it."""
    return sum(seconds[:number]), sum(seconds[number:])


def _scaled_progress(tell: Tell, title: str, before_s: float, own_s: float, all_s: float) -> Tell:
    """What an act tells, as a share of the whole demo."""

    def report(what: str, share: float) -> None:
        tell(f"{title}: {what}" if what else title, (before_s + own_s * max(0.0, min(1.0, share))) / all_s)

    return report
