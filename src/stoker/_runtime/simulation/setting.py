"""A setting: how a loader runs, apart from the data that it loads. The tuner chooses one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from stoker.arguments import DEFAULT_EXECUTOR, EXECUTORS, ExecutorKind, executor_kind

_MOST = 4096
"""The largest valid count. A larger one is a mistake in a file."""


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """Plain and hashable. None means: left to the loader.

    ``engine`` is "stoker" or "torch" (for comparisons). ``workers`` 0 means that the training process makes batches itself.
    ``prefetch`` is batches per worker (``prefetch_factor``). ``threads`` is how many rows a worker fetches at once
    (``threads_per_worker``). ``extra`` has further arguments of ``DataLoader``, as pairs of name and value, sorted by name.
    The replay does not depend on these.
    """

    workers: int = 0
    prefetch: int | None = None
    executor: str = DEFAULT_EXECUTOR
    start_method: str | None = None
    split: bool | None = None
    threads: int = 1
    pin: bool = False
    engine: str = "stoker"
    extra: tuple[tuple[str, Any], ...] = ()

    @property
    def kind(self) -> ExecutorKind:
        """The traits of the executor."""
        return executor_kind(self.executor)

    @property
    def window(self) -> int:
        """The most batches that may be made and not taken."""
        return max(1, self.workers * (self.prefetch or 2))

    @property
    def shares(self) -> bool:
        """Whether several threads make samples at the same time. They share the dataset and its random generators."""
        return self.workers > 0 and (self.kind.threads or self.threads > 1)

    @property
    def concurrency(self) -> int:
        """The most samples in progress at the same time."""
        return max(1, self.workers) * self.threads

    def arguments(self) -> dict[str, Any]:
        """The arguments for the engine's DataLoader: those that differ from its defaults, and always ``num_workers``."""
        found: dict[str, Any] = {"num_workers": self.workers}
        if self.pin:
            found["pin_memory"] = True
        if not self.workers:
            return found | dict(self.extra)
        if self.prefetch is not None:
            found["prefetch_factor"] = self.prefetch
        if self.start_method is not None:
            found["multiprocessing_context"] = self.start_method
        if self.engine == "stoker":
            if self.executor != DEFAULT_EXECUTOR:
                found["executor"] = self.executor
            if self.split is not None:
                found["split_batches"] = self.split
            if self.threads > 1:
                found["threads_per_worker"] = self.threads
        found["persistent_workers"] = True
        return found | dict(self.extra)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON. ``extra`` is a dict, and left out when it is empty."""
        found = asdict(self)
        extra = dict(found.pop("extra"))
        return found | ({"extra": extra} if extra else {})

    @classmethod
    def from_dict(cls, values: Any) -> Setting:
        """The setting that ``as_dict`` gave, from a file. Raises ValueError for values that no loader takes."""
        if not isinstance(values, Mapping):
            raise ValueError(f"no setting: {values!r:.60}")
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        for name, value in known.items():
            if not _VALID[name](value):
                raise ValueError(f"no setting: {name} is {value!r:.60}")
        return cls.restored(known)

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> Setting:
        """The setting that ``as_dict`` gave, from this program. It is not checked."""
        return cls(**{**values, "extra": tuple(sorted(values.get("extra", {}).items()))})


def _is_plain_argument(item: tuple[Any, Any]) -> bool:
    name, value = item
    return isinstance(name, str) and name.isidentifier() and isinstance(value, str | int | float | None)


def _count(least: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= _MOST


_VALID: dict[str, Callable[[Any], bool]] = {
    "workers": _count(0),
    "prefetch": lambda value: value is None or _count(1)(value),
    "executor": lambda value: value in tuple(EXECUTORS),
    "start_method": lambda value: value in (None, "fork", "spawn", "forkserver"),
    "split": lambda value: value is None or type(value) is bool,
    "threads": _count(1),
    "pin": lambda value: type(value) is bool,
    "engine": lambda value: value in ("stoker", "torch"),
    "extra": lambda value: isinstance(value, Mapping) and all(map(_is_plain_argument, value.items())),
}
