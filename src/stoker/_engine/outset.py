"""With how many workers a loader begins that chooses their number itself: a saved profile, else facts of the machine.

Nothing is started and no data is read: frameworks construct loaders several times. What is found here is where the pilot begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stoker._core.tuning.profile import Profile
from stoker._core.tuning.setting import Setting
from stoker._metrics import profiles
from stoker._metrics.cpus import Cpus, cpus

FIRST_MOST = 8
"""Workers to begin with, at most: each costs memory and its start, and the first batches tell whether more are wanted."""

MOST = 32
MOST_PER_CPU = 4
"""Workers at all, at most: so many or, where that is more, so many for each CPU. Work that waits is worth more than the CPUs."""

_WAITING = ("sleep", "storage", "mixed")
"""Regimes in which workers beyond the CPUs are of use."""


@dataclass(frozen=True, slots=True)
class Outset:
    """What to begin with, and why. ``prefetch`` and ``split`` are None where the profile has nothing to say of them."""

    workers: int
    reason: str
    prefetch: int | None = None
    split: bool | None = None


def outset(
    dataset: Any, batch_size: int | None, *, executor: str | None = None, found: Cpus | None = None
) -> Outset:
    """Called by a loader's constructor, in about a millisecond. Never raises."""
    if executor == "inline":
        return Outset(0, "executor='inline' makes batches without workers")
    found = found or cpus()
    profile = profiles.find(dataset, batch_size)
    if profile is not None:
        return _profiled(profile, found, executor or "process")
    workers = min(FIRST_MOST, found.usable if found.usable <= 2 else found.usable - 1)
    text = f"no saved profile, so to begin with {workers} for {found.usable} usable CPU{'s' * (found.usable > 1)}"
    return Outset(workers, f"{text} ({found.reason}); the first batches tell more")


def most(found: Cpus) -> tuple[int, str]:
    """How many workers there may be at all, and why no more."""
    limit = max(MOST, MOST_PER_CPU * found.usable)
    return limit, f"no more than {MOST_PER_CPU} for each usable CPU ({found.reason}), or {MOST}"


def _profiled(profile: Profile, found: Cpus, executor: str) -> Outset:
    """A profile's setting, as far as it is ours to take: no bit of what is delivered may depend on whether it was found."""
    setting = profile.setting
    own = setting.executor == executor and setting.threads == 1
    if not own and profile.plain is not None and executor == "process":
        setting = profile.plain
    workers = setting.workers
    text = f"the profile of {profile.made_at or 'an earlier tuning'} has {workers}"
    if setting is profile.plain:
        text += f" as the best without threads, which are yours to pass ({_shown(profile.setting)})"
    limit, why = most(found)
    if setting.executor != executor and workers:
        limit, why = found.usable, f"they are of executor={setting.executor!r}, which is not taken from it"
    elif profile.regime not in _WAITING:
        limit, why = found.usable, f"workers that compute need a CPU each, and {found.reason}"
    if workers > limit:
        text, workers = f"{text}, bounded by {limit}: {why}", limit
    elif setting.executor != executor and workers:
        text += f" ({why})"
    if setting.threads > 1:
        text += f"; its threads_per_worker={setting.threads} is yours to pass"
    return Outset(workers, text, setting.prefetch if workers else None, setting.split if workers else None)


def _shown(setting: Setting) -> str:
    """Arguments of a setting that a loader does not take up by itself."""
    given = setting.arguments()
    wanted = ("num_workers", "executor", "threads_per_worker")
    return ", ".join(f"{name}={given[name]!r}" for name in wanted if name in given)
