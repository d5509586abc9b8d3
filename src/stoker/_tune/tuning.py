"""``stoker.tune``: probes a target, races settings, and says which one to take."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from stoker._core.tuning.work import Demand
from stoker._tune import demand as demands
    found = answers.now()
    return kept(found, search.target) if save and search.target is not None else found
