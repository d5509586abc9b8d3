"""Saves the result of a tuning for ``num_workers="auto"``."""

from __future__ import annotations

import time
from dataclasses import replace

from stoker._record.dataset_identity import machine_key
from stoker._runtime.autoscale import profile_files
from stoker._runtime.autoscale.profile import Profile
from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.facts import Target
from stoker._tools.tune.result import Tuning


def with_saved_profile(tuning: Tuning, target: Target) -> Tuning:
    """Save a profile. Returns the tuning with the profile's file, or with a warning if it could not be written. Never raises.

    A tuning that failed or compared nothing is not saved: "auto" knows more by itself.
    """
    compared = sum(each.blocks > 0 and not each.failure for each in tuning.points) > 1
    if tuning.failure or not target.key or not (compared or tuning.stopped == "not the bottleneck"):
        return tuning
    try:
        path = profile_files.save(profile_of(tuning, target))
    except OSError as error:
        why = f'The profile for num_workers="auto" was not saved: {error.strerror or error}.'
        return replace(tuning, warnings=(*tuning.warnings, why))
    return replace(tuning, profile=str(path))


def profile_of(tuning: Tuning, target: Target) -> Profile:
    """The profile of a tuning."""
    point = next((each for each in tuning.points if each.setting == tuning.recommended), None)
    host, work = tuning.host, tuning.work
    return Profile(
        dataset=target.key,
        batch_size=target.batch_size,
        machine=machine_key(),
        setting=tuning.recommended,
        regime=tuning.regime,
        made_at=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        interval_ns=None if point is None else point.interval_ns.middle,
        step_ns=tuning.demand.step_ns,
        batch_ns=None if work is None or not work.batch_ns else work.typical_ns,
        cpus=None if host is None else host.cpus,
        ranks=1 if host is None else host.ranks,
        reason=(tuning.why[0] if tuning.why else tuning.verdict)[:500],
        name=target.dataset_class,
        plain=_plain(tuning),
    )


def _plain(tuning: Tuning) -> Setting | None:
    """The fastest setting that "auto" may use by itself; None if the recommended one is of that kind."""
    if _is_plain(tuning.recommended):
        return None
    points = [each for each in tuning.points if each.blocks and not each.failure and _is_plain(each.setting)]
    best = min(points, key=lambda each: each.ratio.middle, default=None)
    return None if best is None else best.setting


def _is_plain(setting: Setting) -> bool:
    threadless = setting.kind.processes and setting.threads == 1
    return setting.engine == "stoker" and threadless and not setting.extra
