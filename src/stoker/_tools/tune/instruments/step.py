"""The user's step function: found, and called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stoker._tools.sandbox.outcome import FactUnavailable
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.target import text_of, user_stack, value_of
from stoker.errors import TargetError

KEPT, _NAME = "step", "step_name"


def step_of(subject: Subject) -> Callable[[Any], Any]:
    """What ``subject.trial["step"]`` names, found once; else the one that came with the subject. Raises FactUnavailable."""
    named = subject.trial.get(KEPT)
    if isinstance(named, str) and subject.kept.get(_NAME) != named:
        subject.kept[KEPT], subject.kept[_NAME] = _found(named), named
    if KEPT not in subject.kept:
        raise FactUnavailable("there is no step function")
    step: Callable[[Any], Any] = subject.kept[KEPT]
    return step


def _found(named: str) -> Any:
    try:
        found = value_of(named)
    except TargetError as error:
        raise FactUnavailable(f"the step function cannot be had: {error}", error.stack) from None
    if not callable(found):
        raise FactUnavailable(f"{named} is no function: the step function is called with a batch")
    return found


def call(step: Callable[[Any], Any], batch: Any) -> None:
    """One step. Raises FactUnavailable, with the user's stack, for what it raises."""
    try:
        step(batch)
    except Exception as error:
        said = f"the step function raised {type(error).__name__}: {text_of(error)}"
        raise FactUnavailable(said.splitlines()[0], user_stack(error)) from error
