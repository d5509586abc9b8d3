"""What a scenario is, and how one is drawn from a seed. Pure: the same seed always gives the same scenario."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

MAP_KINDS = ("flat", "nested", "text", "mixed", "large", "ragged", "many", "single")
STREAM_KINDS = ("shards", "unequal")
KINDS = MAP_KINDS + STREAM_KINDS
STARTS = ("fork", "forkserver", "spawn")
DEATHS = ("exit", "kill", "segv")
ENDS = ("exhaust", "break", "keep", "shutdown", "close", "unread")
"""How an epoch ends: by itself; iterator dropped; iterator left alone until the very end; its workers shut down; loader closed;
iterator dropped before its first batch.
"""

FINALES = ("close", "with", "drop")


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over the loader. ``after`` counts batches before an early end; ``twin`` runs a second iterator beside it."""

    end: str
    after: int
    twin: bool


@dataclass(frozen=True, slots=True)
class Scenario:
    """A loader, a dataset with its planned misbehaviour, and what happens to both.

    ``outside`` is the chance of a fault from outside at each batch, ``kills`` how many of them may be deaths, ``hold`` how many
    batches the reader keeps. Rows in ``raises`` always raise and those in ``nones`` are None; ``deaths`` and ``slow`` happen once.
    """

    seed: int
    executor: Any
    start: str
    kind: str
    rows: int
    batch_size: int | None
    num_workers: int
    in_order: bool
    persistent: bool
    split: bool | None
    shuffle: bool
    drop_last: bool
    prefetch_factor: int | None
    rng: str
    outside: float
    kills: int
    hold: int
    scribble: bool
    deaths: tuple[tuple[int, str], ...]
    slow: tuple[tuple[int, float], ...]
    raises: frozenset[int]
    nones: frozenset[int]
    on_bad_sample: str
    epochs: tuple[Epoch, ...]
    finale: str

    @property
    def stream(self) -> bool:
        """Whether the dataset is iterable-style."""
        return self.kind in STREAM_KINDS

    @property
    def noisy(self) -> bool:
        """Whether rows draw from the global generators; with threads these belong to the trainer and are not comparable."""
        return self.executor != "thread"

    def title(self) -> str:
        """One line for messages."""
        where = self.start if self.executor == "process" else self.executor
        options = [name for name in ("persistent", "shuffle", "drop_last") if getattr(self, name)]
        options += [] if self.in_order else ["any order"]
        options += [] if self.on_bad_sample == "raise" else [self.on_bad_sample]
        return (
            f"{where}×{self.num_workers} {self.kind} batch_size={self.batch_size} split={self.split} rng={self.rng} "
            f"prefetch={self.prefetch_factor} {' '.join(options)}".rstrip()
        )


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    dice = Random(seed)
    executor = dice.choices(("process", "thread", "inline"), (84, 12, 4))[0]
    start = dice.choices(STARTS, (63, 34, 3))[0] if executor == "process" else "none"
    kind = dice.choice(KINDS)
    stream = kind in STREAM_KINDS
    slow_start = start == "spawn"  # every replacement imports torch anew
    workers = 0 if executor == "inline" else dice.randint(1, 2 if slow_start else 4)
    rows = dice.randint(80, 260)
    single = kind == "single" or (stream and dice.random() < 0.2)
    batch_size = None if single else dice.choice((16, 40) if kind == "large" else (4, 8, 20, 40))
    if batch_size is None:
        rows = min(rows, 80)
    brief = start == "fork" and dice.random() < 0.25  # fresh workers again and again, hardly anything to do
    if brief:
        rows, workers = dice.randint(4, 40), dice.randint(1, 6)
    places = _places(dice, kind, rows, max(1, workers))
    on_bad_sample = dice.choices(("raise", "skip", "replace"), (70, 15, 15))[0]
    count = 1 if slow_start else dice.randint(8, 25) if brief else dice.randint(1, 4)
    epochs = tuple(_epoch(dice, twins=not slow_start) for _ in range(count))
    return Scenario(
        seed=seed,
        executor=executor,
        start=start,
        kind=kind,
        rows=rows,
        batch_size=batch_size,
        num_workers=workers,
        in_order=dice.random() < 0.75,
        persistent=workers > 0 and dice.random() < (0.2 if brief else 0.5),
        split=dice.choice((None, None, True, False)),
        shuffle=not stream and dice.random() < 0.5,
        drop_last=batch_size is not None and dice.random() < 0.3,
        prefetch_factor=dice.choice((None, None, 1, 2, 5)) if workers else None,
        rng="batch" if stream else dice.choice(("batch", "batch", "sample")),
        outside=dice.choice((0.1, 0.3, 0.6)) if executor == "process" else 0.0,
        kills=1 if slow_start else 40,
        hold=dice.choice((0, 3, 12)),
        scribble=dice.random() < 0.5,
        deaths=tuple((place, dice.choice(DEATHS)) for place in places[: 1 if slow_start else 3])
        if executor == "process"
        else (),
        slow=tuple((place, dice.uniform(0.003, 0.1)) for place in places[3:7]),
        raises=frozenset(places[7 : 7 + dice.choice((0, 0, 1, 3))]),
        nones=frozenset(places[10:12]) if on_bad_sample != "raise" else frozenset(),
        on_bad_sample=on_bad_sample,
        epochs=epochs,
        finale=dice.choice(FINALES),
    )


def stream_lengths(kind: str, rows: int, workers: int) -> list[int]:
    """How many rows each worker's stream has. Unequal ones differ much, and the second may be empty."""
    if kind == "shards":
        return [len(range(worker, rows, workers)) for worker in range(workers)]
    return [(rows * (worker + 2) // 3) % 50 if worker != 1 else rows % 3 for worker in range(workers)]


def stream_indices(kind: str, rows: int, worker: int, workers: int) -> range:
    """The rows of one worker's stream, by numbers that no other stream uses."""
    length = stream_lengths(kind, rows, workers)[worker]
    if kind == "shards":
        return range(worker, rows, workers)
    return range(1000 * worker, 1000 * worker + length)


def _places(dice: Random, kind: str, rows: int, workers: int) -> list[int]:
    """Rows that misbehave, in random order, each at most once."""
    if kind in STREAM_KINDS:
        known = [place for worker in range(workers) for place in stream_indices(kind, rows, worker, workers)]
    else:
        known = list(range(rows))
    return dice.sample(known, min(12, len(known)))


def _epoch(dice: Random, *, twins: bool) -> Epoch:
    end = dice.choices(ENDS, (50, 20, 10, 5, 10, 5))[0]
    return Epoch(end=end, after=dice.randint(0, 8), twin=twins and dice.random() < 0.2)
