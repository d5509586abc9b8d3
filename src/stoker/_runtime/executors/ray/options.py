"""``stoker.Ray``: how and where the workers of a loader run on a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Ray:
    """``DataLoader(..., executor=stoker.Ray(...))``: ``num_workers`` workers on a Ray cluster, each in an actor of its own.

    The first ``local`` of them are ordinary worker processes on this machine. ``num_cpus``, ``resources`` and ``runtime_env``
    are what each actor asks Ray for, and ``strategy`` is Ray's scheduling strategy: "SPREAD" unless you say otherwise.
    ``address`` is the cluster to join: None takes ``RAY_ADDRESS``, or starts one here, as ``ray.init()`` does. Workers that find
    no free CPU join later. Without any worker, the first batch waits ``wait_s`` seconds for one, then raises. With
    ``wait_for_all`` it waits so long for all of them.
    """

    executor_kind: ClassVar[str] = "ray"
    """The name in the table of executors (``arguments.EXECUTORS``)."""

    num_cpus: float = 1
    resources: Mapping[str, float] | None = None
    runtime_env: Mapping[str, Any] | None = None
    strategy: Any = "SPREAD"
    local: int = 0
    address: str | None = None
    wait_s: float = 60.0
    wait_for_all: bool = False

    def __post_init__(self) -> None:
        for name in ("num_cpus", "wait_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} should be a number, but got {type(value).__name__}")
            if value < 0:
                raise ValueError(f"{name} should be non-negative, but got {name}={value}")
        if isinstance(self.local, bool) or not isinstance(self.local, int):
            raise TypeError(f"local should be an int, but got {type(self.local).__name__}")
        if self.local < 0:
            raise ValueError(f"local should be non-negative, but got local={self.local}")
        for name in ("resources", "runtime_env"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Mapping):
                raise TypeError(f"{name} should be a dict or None, but got {type(value).__name__}")
        if not isinstance(self.wait_for_all, bool):
            raise TypeError(
                f"wait_for_all should be True or False, but got {type(self.wait_for_all).__name__}"
            )
        if self.address is not None and not isinstance(self.address, str):
            raise TypeError(f"address should be a string or None, but got {type(self.address).__name__}")
