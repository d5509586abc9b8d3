"""With how many workers a loader begins that chooses their number itself: a saved profile, else facts of the machine.

Nothing is started and no data is read: frameworks construct loaders several times. What is found here is where the policy begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stoker._host.cpus import Cpus, cpus
from stoker._runtime.autoscale import profile_files
from stoker._runtime.autoscale.profile import Profile
from stoker._runtime.simulation.setting import Setting
from stoker.arguments import DEFAULT_EXECUTOR, executor_kind

FIRST_MOST = 8
"""Workers to begin with, at most: each costs memory and its start, and the first batches tell whether more are wanted."""

MOST = 32
MOST_PER_CPU = 4
"""Workers at all, at most: so many or, where that is more, so many for each CPU. Work that waits is worth more than the CPUs."""

_WAITING = ("sleep", "storage", "mixed")
"""Regimes in which workers beyond the CPUs are of use."""


@dataclass(frozen=True, slots=True)
class InitialWorkers:
    """What to begin with, and why. ``prefetch`` and ``split`` are None where the profile has nothing to say of them."""

    workers: int
    reason: str
    prefetch: int | None = None
    split: bool | None = None


def choose_initial_workers(
    dataset: Any,
    batch_size: int | None,
    *,
    executor: str | None = None,
    threads: int = 1,
    found: Cpus | None = None,
) -> InitialWorkers:
    """Called by a loader's constructor, in about a millisecond. Never raises."""
    if not executor_kind(executor).workers:
        return InitialWorkers(0, f"executor={executor!r} makes batches without workers")
    found = found or cpus()
    profile = profile_files.find(dataset, batch_size)
    if profile is not None:
        return _profiled(profile, found, executor or DEFAULT_EXECUTOR, threads)
    workers = min(FIRST_MOST, found.usable if found.usable <= 2 else found.usable - 1)
    text = f"no saved profile, so to begin with {workers} for {found.usable} usable CPU{'s' * (found.usable > 1)}"
    return InitialWorkers(workers, f"{text} ({found.reason}); the first batches tell more")


def most_workers(found: Cpus) -> tuple[int, str]:
    """How many workers there may be at all, and why no more."""
    limit = max(MOST, MOST_PER_CPU * found.usable)
    return limit, f"no more than {MOST_PER_CPU} for each usable CPU ({found.reason}), or {MOST}"


def _profiled(profile: Profile, found: Cpus, executor: str, threads: int) -> InitialWorkers:
    """A profile's setting, as far as it is ours to take: no bit of what is delivered may depend on whether it was found."""
    setting = profile.setting
    limit, why = most_workers(found)
    left = ""
    if setting.workers and (setting.executor, setting.threads) != (executor, threads):
        if profile.plain is not None and (executor, threads) == (DEFAULT_EXECUTOR, 1):
            left = f" as the best without threads, which are yours to pass ({_shown(setting)})"
            setting = profile.plain
        else:
            left = f" for other arguments, which are yours to pass ({_shown(setting)})"
            limit, why = found.usable, found.reason
    if profile.regime not in _WAITING and found.usable < limit:
        limit, why = found.usable, f"workers that compute need a CPU each, and {found.reason}"
    workers = min(setting.workers, limit)
    text = f"the profile of {profile.made_at or 'an earlier tuning'} has {setting.workers}{left}"
    if workers < setting.workers:
        text += f", bounded by {limit}: {why}"
    prefetch, split = (setting.prefetch, setting.split) if workers else (None, None)
    return InitialWorkers(workers, text, prefetch, split)


def _shown(setting: Setting) -> str:
    """Arguments of a setting that a loader does not take up by itself."""
    given = setting.arguments()
    wanted = ("num_workers", "executor", "threads_per_worker")
    return ", ".join(f"{name}={given[name]!r}" for name in wanted if name in given)
