"""A profile: the result of a tuning, saved for ``num_workers="auto"``. It has plain values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from stoker._runtime.simulation.setting import Setting

FORMAT = "stoker-profile"
VERSION = 1
_LONGEST = 2000
"""The longest text that is read from a file."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The setting that won for one dataset, batch size and machine.

    ``dataset`` and ``machine`` are keys (``_record.dataset_identity``). ``batch_size`` is None if a batch sampler makes the
    batches, or if there are none. The setting was found with so many ``cpus`` and ``ranks``. With fewer CPUs it is bounded.
    """

    dataset: str
    batch_size: int | None
    machine: str
    setting: Setting
    regime: str = "unknown"
    made_at: str = ""
    """The date, for people: "2026-11-16 16:40 UTC"."""
    interval_ns: float | None = None
    """The measured time between two batches."""
    step_ns: int = 0
    """The training loop's time for a step; 0 if unknown."""
    batch_ns: float | None = None
    """One worker's time for a batch."""
    cpus: float | None = None
    ranks: int = 1
    reason: str = ""
    """The reason for this setting, in a sentence."""
    name: str = ""
    """The dataset's class, for people."""
    plain: Setting | None = None
    """The best setting with worker processes and without threads, if ``setting`` is not of this kind. It changes no bit of a
    batch.
    """

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        settings = {
            "setting": self.setting.as_dict(),
            "plain": None if self.plain is None else self.plain.as_dict(),
        }
        return {"format": FORMAT, "version": VERSION, **asdict(self), **settings}

    @classmethod
    def from_dict(cls, data: Any) -> Profile:
        """Raises ValueError if the data is no profile, is damaged, or has a newer version. Unknown names are ignored."""
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise ValueError(f"it has no format {FORMAT!r}")
        version = data.get("version")
        if type(version) is not int or version < 1:
            raise ValueError("it does not say its version")
        if version > VERSION:
            raise ValueError(f"it has version {version}, and this stoker reads up to {VERSION}")
        values = {each.name: data[each.name] for each in fields(cls) if each.name in data}
        for name, kinds in _KINDS.items():
            if name not in values and name in _REQUIRED:
                raise ValueError(f"{name} is missing")
            if name in values and type(values[name]) not in kinds:
                raise ValueError(f"{name} is {values[name]!r:.60}")
        for name, value in values.items():
            if isinstance(value, str) and len(value) > _LONGEST:
                raise ValueError(f"{name} has {len(value)} characters")
            if isinstance(value, int | float) and not 0 <= value < 1e18:
                raise ValueError(f"{name} is {value!r:.60}")
        plain = values.get("plain")
        return cls(
            **{
                **values,
                "setting": Setting.from_dict(data.get("setting")),
                "plain": None if plain is None else Setting.from_dict(plain),
            }
        )


_NUMBER = (int, float, type(None))
_KINDS: dict[str, tuple[type, ...]] = {
    "dataset": (str,),
    "batch_size": (int, type(None)),
    "machine": (str,),
    "regime": (str,),
    "made_at": (str,),
    "interval_ns": _NUMBER,
    "step_ns": (int,),
    "batch_ns": _NUMBER,
    "cpus": _NUMBER,
    "ranks": (int,),
    "reason": (str,),
    "name": (str,),
}
_REQUIRED = ("dataset", "batch_size", "machine")
