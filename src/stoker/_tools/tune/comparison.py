"""The result of a bench: torch's loader as most people run it, the target's own setting, and stoker's tuned, side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from stoker._host.secrets import masked_values
from stoker._runtime.simulation.point import Point
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host

FORMAT = "stoker-bench"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Lane:
    """One setting that was run, with its names: ``("torch's default", "yours")``."""

    names: tuple[str, ...]
    point: Point
    """``ratio`` is relative to the first lane's time. ``failure`` says why there are no measurements."""
    per_second: float = 0.0
    """Batches per second."""

    @property
    def setting(self) -> Setting:
        return self.point.setting

    @property
    def name(self) -> str:
        return ", ".join(self.names)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The lanes in the order in which they are shown. The last one is stoker's. Secrets in the texts are hidden."""

    target: str
    batch_size: int | None
    lanes: tuple[Lane, ...]
    verdict: str
    """The result in one sentence."""
    kept: tuple[str, ...] = ()
    """Arguments of the target that no setting changes, as one would type them: "shuffle=True"."""
    tuned_by: str = ""
    """The source of the tuned setting: "given", "profile of 2026-11-16 16:40 UTC", "tuned now", "assumed"."""
    alike: bool | None = None
    """Whether both engines gave equal first batches. None: unknown, for the reason in ``alike_text``."""
    alike_text: str = ""
    rounds: int = 0
    demand: Demand = field(default_factory=lambda: Demand(0))
    host: Host | None = None
    warnings: tuple[str, ...] = ()
    stopped: str = ""
    """ "budget", "interrupted", "failed"."""
    spent_s: float = 0.0
    failure: str = ""
    """The reason in a line if nothing could be compared."""

    def __post_init__(self) -> None:
        for name in ("target", "verdict", "kept", "tuned_by", "alike_text", "warnings", "failure"):
            object.__setattr__(self, name, masked_values(getattr(self, name)))

    @property
    def tuned(self) -> Lane | None:
        """stoker's lane, if it was run."""
        return self.lanes[-1] if self.lanes else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = _plain(asdict(self))
        lanes = [
            {"names": list(each.names), "arguments": each.setting.arguments(), "engine": each.setting.engine,
             "per_second": each.per_second, **_plain(asdict(each.point)), "setting": each.setting.as_dict()}
            for each in self.lanes
        ]  # fmt: skip
        return {"format": FORMAT, "version": VERSION, **plain, "lanes": lanes}


def _plain(value: Any) -> Any:
    """The value for JSON: null for numbers that JSON cannot express."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
