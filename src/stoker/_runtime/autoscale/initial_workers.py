"""Chooses the first number of workers for ``num_workers="auto"``: from a saved profile, or from facts of the machine.

It starts nothing and reads no data, because frameworks construct loaders several times. The policy continues from this number.
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
"""The most workers at the start. Each costs memory and start-up time, and the first batches show whether more are needed."""

MOST = 32
MOST_PER_CPU = 4
"""The most workers at any time: this number, or so many for each CPU if that is more. Work that waits needs more than the CPUs."""

_WAITING = ("sleep", "storage", "mixed")
"""Regimes in which more workers than CPUs help."""


@dataclass(frozen=True, slots=True)
class InitialWorkers:
    """The first number of workers and the reason. ``prefetch`` and ``split`` are None if the profile does not set them."""

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
    """Choose. A loader's constructor calls it; it takes about a millisecond and never raises."""
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
    """The most workers at any time, and the reason."""
    limit = max(MOST, MOST_PER_CPU * found.usable)
    return limit, f"no more than {MOST_PER_CPU} for each usable CPU ({found.reason}), or {MOST}"


def _profiled(profile: Profile, found: Cpus, executor: str, threads: int) -> InitialWorkers:
    """The profile's setting, without the values that would change the delivered batches."""
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
    """The arguments of a setting that a loader does not apply by itself."""
    given = setting.arguments()
    wanted = ("num_workers", "executor", "threads_per_worker")
    return ", ".join(f"{name}={given[name]!r}" for name in wanted if name in given)
