"""Finds datasets whose state lacks the samples in their shuffle buffer, as that of Hugging Face's iterable datasets does.

    dataset._ex_iterable ──► .ex_iterable ──► .ex_iterables[0] ──► … has .buffer_size, and no state of its own

Their ``state_dict`` tells how far the source was read. Samples that were read and wait in the buffer are lost when it is loaded.
"""

from __future__ import annotations

from typing import Any

_MOST_STEPS = 10_000
"""How many steps of a dataset are looked at. Each ``map``, ``filter`` and the like is one."""


def loses_samples(dataset: Any) -> bool:
    """Whether the dataset would lose samples if its state were loaded."""
    found = getattr(dataset, "_ex_iterable", None)
    steps = [] if found is None else [found]
    for step in steps:  # grows while it is iterated
        source = getattr(step, "ex_iterable", None)
        if source is not None:
            if hasattr(step, "buffer_size") and _state_of(step) is _state_of(source):
                return True
            steps.append(source)
        several = getattr(step, "ex_iterables", None)
        if isinstance(several, list | tuple):
            steps.extend(several)
        if len(steps) > _MOST_STEPS:
            break
    return False


def _state_of(step: Any) -> Any:
    """A step with nothing to add to the state shares its source's. None before the state is first made."""
    return getattr(step, "_state_dict", None)
