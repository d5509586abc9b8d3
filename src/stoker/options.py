"""stoker's own arguments, checked and resolved once into a frozen object that remembers why each has its value."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Executor = Literal["process", "thread", "inline"]
RngMode = Literal["batch", "sample", "torch"]
BadSampleMode = Literal["raise", "skip", "replace"]
EXECUTORS: tuple[str, ...] = get_args(Executor)
RNG_MODES: tuple[str, ...] = get_args(RngMode)
BAD_SAMPLE_MODES: tuple[str, ...] = get_args(BadSampleMode)
_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}


AUTO = "auto"


class Auto(int):
    """A number of workers that the loader chose itself. It counts as an int, and a constructor takes it as "auto" again.

    It is what ``loader.num_workers`` is then, at any time: frameworks compare it with numbers, and rebuild loaders from it.
    """

    def __repr__(self) -> str:
        return f"Auto({int(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)


def is_auto(num_workers: Any) -> bool:
    """Whether the loader is to choose the number itself. Raises ValueError for another text."""
    if isinstance(num_workers, str) and num_workers != AUTO:
        raise ValueError(f"num_workers should be a number or {AUTO!r}, but got num_workers={num_workers!r}")
    return isinstance(num_workers, str | Auto)


class LeftOpen(int):
    """A number that the user did not give. It compares and counts as an int, and a constructor takes it as "not given" again.

    Frameworks rebuild loaders from their attributes: without this, torch's default would come back as a choice.
    """


@dataclass(frozen=True, slots=True)
class Options:
    """What the engine goes by. ``reasons`` says for each field whether the user, a rule or a default set it."""

    executor: str
    rng: str
    restarts: int
    on_bad_sample: str
    split_batches: bool
    memory_budget_bytes: int | None
    deepen: bool
    name: str
    reasons: dict[str, str] = field(default_factory=dict)
    threads: int = 1


def check(
    *,
    executor: Any,
    rng: Any,
    restarts: Any,
    on_bad_sample: Any,
    memory_budget: Any,
    split_batches: Any,
    name: Any,
    num_workers: int,
    snapshot_every_n_steps: Any = 1,
    prefetch_epochs: Any = False,
    lasting: bool = True,
    iterable: bool = False,
    batched: bool = True,
    record: Any = None,
    threads_per_worker: Any = 1,
) -> None:
    """Raise as torch would for a wrong argument: ValueError for a value, TypeError for a type."""
    if executor is not None and executor not in EXECUTORS:
        raise ValueError(f"executor should be one of {EXECUTORS} or None, but got executor={executor!r}")
    if executor == "inline" and num_workers > 0:
        raise ValueError(
            f"executor='inline' makes batches without workers, but got num_workers={num_workers}"
        )
    if rng not in RNG_MODES:
        raise ValueError(f"rng should be one of {RNG_MODES}, but got rng={rng!r}")
    if isinstance(restarts, bool) or not isinstance(restarts, int):
        raise TypeError(f"restarts should be an int, but got {type(restarts).__name__}")
    if restarts < 0:
        raise ValueError(f"restarts should be non-negative, but got restarts={restarts}")
    if on_bad_sample not in BAD_SAMPLE_MODES:
        raise ValueError(
            f"on_bad_sample should be one of {BAD_SAMPLE_MODES}, but got on_bad_sample={on_bad_sample!r}"
        )
    if split_batches is not None and not isinstance(split_batches, bool):
        raise TypeError(f"split_batches should be a bool or None, but got {type(split_batches).__name__}")
    if snapshot_every_n_steps is not None and (
        isinstance(snapshot_every_n_steps, bool) or not isinstance(snapshot_every_n_steps, int)
    ):
        raise TypeError(
            f"snapshot_every_n_steps should be an int, but got {type(snapshot_every_n_steps).__name__}"
        )
    if snapshot_every_n_steps is not None and snapshot_every_n_steps < 0:
        raise ValueError(
            f"snapshot_every_n_steps should be non-negative, but got snapshot_every_n_steps={snapshot_every_n_steps}"
        )
    if not isinstance(prefetch_epochs, bool):
        raise TypeError(f"prefetch_epochs should be a bool, but got {type(prefetch_epochs).__name__}")
    if prefetch_epochs and not lasting:
        raise ValueError(
            "prefetch_epochs needs workers that outlive an epoch: pass persistent_workers=True as well"
        )
    if prefetch_epochs and iterable:
        raise ValueError(
            "prefetch_epochs needs a map-style dataset: only the workers know when an iterable one ends"
        )
    _check_threads(threads_per_worker, executor, iterable=iterable, batched=batched)
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name should be a string or None, but got {type(name).__name__}")
    if record is not None and not isinstance(record, bool | str | os.PathLike):
        raise TypeError(f"record should be a bool, a path or None, but got {type(record).__name__}")
    if memory_budget is not None:
        parse_bytes(memory_budget)


def _check_threads(count: Any, executor: Any, *, iterable: bool, batched: bool) -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"threads_per_worker should be an int, but got {type(count).__name__}")
    if count < 1:
        raise ValueError(f"threads_per_worker should be at least 1, but got threads_per_worker={count}")
    if count == 1:
        return
    given = f"but got threads_per_worker={count}"
    if executor == "thread":
        raise ValueError(
            f"threads_per_worker is for worker processes: with executor='thread' raise num_workers instead, {given}"
        )
    if iterable:
        raise ValueError(
            f"threads_per_worker fetches rows of a map-style dataset at once, and an iterable one gives them one after the other, "
            f"{given}"
        )
    if not batched:
        raise ValueError(
            f"threads_per_worker fetches the rows of a batch at once, and with batch_size=None there is one, {given}"
        )


def resolve(
    *,
    executor: str | None,
    rng: str,
    restarts: int,
    on_bad_sample: str,
    memory_budget: int | str | None,
    split_batches: bool | None,
    name: str | None,
    num_workers: int,
    prefetch_given: bool,
    threads_per_worker: int = 1,
    chosen_because: str | None = None,
) -> Options:
    """Fill in what the user left open. ``chosen_because`` is why there are so many workers, where the user did not say."""
    reasons: dict[str, str] = {}
    if chosen_because is not None:
        reasons["num_workers"] = f"auto: {chosen_because}"

    def chosen(key: str, given: bool, rule: str) -> None:
        reasons[key] = "given" if given else rule

    if num_workers == 0:
        kind = "inline"
        reasons["executor"] = "num_workers is 0"
        if threads_per_worker > 1:
            reasons["threads_per_worker"] = "not used: num_workers is 0"
    else:
        kind = executor or "process"
        chosen("executor", executor is not None, "default")
    chosen(
        "split_batches",
        split_batches is not None,
        "on where it pays: torch's own collation in worker processes",
    )
    chosen(
        "memory_budget",
        memory_budget is not None,
        "a quarter of the memory available now, divided by local ranks and loaders at work",
    )
    chosen("deepen", prefetch_given, "prefetch_factor was left open")
    return Options(
        executor=kind,
        rng=rng,
        restarts=restarts,
        on_bad_sample=on_bad_sample,
        split_batches=True if split_batches is None else split_batches,
        memory_budget_bytes=None if memory_budget is None else parse_bytes(memory_budget),
        deepen=not prefetch_given,
        name=name or "loader",
        threads=threads_per_worker if num_workers else 1,
        reasons=reasons,
    )


def parse_bytes(value: int | str) -> int:
    """Bytes from a number or a text such as "2GiB" or "500 MB"."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(
            f"memory_budget should be a number of bytes or a text like '2GiB', but got {type(value).__name__}"
        )
    if isinstance(value, int):
        number = value
    else:
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", value.lower())
        if found is None:
            raise ValueError(
                f"memory_budget should be a number of bytes or a text like '2GiB', but got {value!r}"
            )
        number = int(float(found[1]) * _UNITS[found[2] or ""])
    if number <= 0:
        raise ValueError(f"memory_budget should be positive, but got {value!r}")
    return number
