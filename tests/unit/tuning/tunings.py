"""Tunings made by hand."""

from __future__ import annotations

from typing import Any

from stoker._runtime.simulation.point import Interval, Point
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.tune.edits import edits
from stoker._tools.tune.facts import Target
from stoker._tools.tune.result import Tuning

NOW = Setting(workers=0, engine="torch")
BEST = Setting(workers=3, prefetch=4)
OTHER = Setting(
    workers=8, prefetch=2, executor="thread", start_method="spawn", split=True, threads=4, pin=True
)


def target(setting: Setting = NOW, **more: Any) -> Target:
    written = {
        "num_workers": "0",
        "prefetch_factor": "None",
        "pin_memory": "False",
        "persistent_workers": "False",
    }
    written |= {name: repr(value) for name, value in setting.arguments().items()}
    given = {
        "name": "train.py:loader", "loader": True, "setting": setting, "batch_size": 64, "batches": 100, "stream": False,
        "site": "train.py:3", "line": 3, "key": "0" * 32, "dataset_class": "Pictures", "written": tuple(written.items()),
    }  # fmt: skip
    return Target(**{**given, **more})


def point(setting: Setting, ms: float, ratio: float, **more: Any) -> Point:
    given: dict[str, Any] = {
        "interval_ns": Interval(ms * 1e6, ms * 0.98e6, ms * 1.03e6), "ratio": Interval(ratio, ratio - 0.02, ratio + 0.03),
        "stall": 0.4, "cpu_ns": 19.1e6, "memory_bytes": 300 << 20, "blocks": 7,
    }  # fmt: skip
    return Point(setting, **{**given, **more})


def tuning(recommended: Setting = BEST, **more: Any) -> Tuning:
    given: dict[str, Any] = {
        "target": "train.py:loader",
        "batch_size": 64,
        "baseline": NOW,
        "recommended": recommended,
        "verdict": "Take 3 workers with a prefetch_factor of 4: a batch every 12.5 ms instead of 21.3 ms.",
        "why": (
            "Samples are computed: 95 % of a batch's time is on a CPU, so workers help up to the CPUs there are.",
            "Three of them make a batch every 12.5 ms; the step takes 12 ms.",
        ),
        "regime": "compute",
        "warnings": ("On a machine with more CPUs more workers would help.",),
        "gain": Interval(0.41, 0.38, 0.44),
        "ceiling": 0.44,
        "limit": "the CPUs of this machine",
        "stopped": "the rest are within 3 %",
        "spent_s": 31.4,
        "host": Host(cpus=4, reason="this machine has 4 CPUs", machine_cpus=4),
        "work": Work(64, (31_000_000, 33_000_000), (30_000_000, 31_000_000), batch_bytes=9 << 20),
        "demand": Demand(12_000_000, 1_000_000, "step-ms"),
        "points": (
            point(NOW, 21.3, 1.0, memory_bytes=None),
            point(BEST, 12.5, 0.59, predicted_ns=12.1e6),
            point(OTHER, 12.6, 0.6, disturbed=1),
            point(Setting(workers=16), 0, 0, failure="RuntimeError: no room in /dev/shm", blocks=0),
        ),
        "curve": {"knee": 3, "points": [[1, 31.0], [3, 12.5]]},
        "oracle": {"error": 0.04},
        "edits": edits(target(), recommended),
        "file": None,
        "line": 3,
        "profile": "profiles/0.json",
    }
    given["edit"] = given["edits"][0] if given["edits"] else None
    return Tuning(**{**given, **more})
