"""Defines the run record: what a training script did with its data, as one versioned JSON (docs/record.md).

A run has loaders; a loader has totals, blame, workers, its slowest samples, events, and a bounded table of steps. What was not
measured is None, never 0. All times are nanoseconds; those that name a moment (``at_ns``, ``asked_ns``…) count from
``run.began_ns``, a reading of the monotonic clock, which ``run.began_unix_ns`` ties to the calendar.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from types import NoneType
from typing import Any, NamedTuple

from stoker.arguments import ExecutorKind, executor_kind
from stoker.errors import RecordError

FORMAT = "stoker-run"
VERSION = 1

STAGES = (
    "start",
    "plan",
    "queue",
    "fetch",
    "collate",
    "hand_over",
    "network",
    "wake",
    "open",
    "pin",
    "copy",
    "record",
)
"""Where a wait was spent. ``start``: ``iter()`` and workers that come up. ``plan``: the sampler, in the parent. ``queue``: a
ticket that no worker had taken although one was free. ``fetch`` and ``collate``: in a worker, or in the parent without
workers. ``hand_over``: writing the batch into its slot, or pickling it. ``network``: a batch of a worker on another host,
on its way into the arena. ``wake``: the batch was there and the consumer had not heard of it. ``open``: building the tensors.
``pin``: copying into pinned memory. ``copy``: copies to the device that the loop had to wait for, and beginning those that it
need not. ``record``: making this record, a few times a second.
"""

CAUSES = ("io", "compute", "gil", "starved", "bandwidth", "parent", "start_up", "head_of_line", "unknown")
"""Why. ``io``: off the CPU, for storage, network, a lock or a sleep. ``starved``: ready to run and no CPU free.
``head_of_line``: a later batch was ready, and order held it back. ``unknown``: there were no readings of the worker's CPU
time.
"""


class StepRow(NamedTuple):
    """One row of the step table. The only list of its columns: buffers, totals, traces and readers take theirs from here.

    A batch has one row, and one more for each further part (``part`` > 0) when it was split. Moments are as in the module.
    0: not measured.

    The call of ``next()`` lasts from ``asked_ns`` to ``given_ns``. At ``got_ns`` the batch had come. At ``planned_ns`` new
    tasks had been sent to the workers; after that the batch was opened.
    """

    asked_ns: int
    got_ns: int
    planned_ns: int
    given_ns: int
    epoch: int
    seq: int
    part: int
    attempt: int
    worker: int
    rows: int
    ready: int
    """1 when the batch was there before it was asked for."""
    depth: int
    """Batches that were made and not taken at that moment; ``undelivered_bytes`` is their size."""
    undelivered_bytes: int = 0
    batch_bytes: int = 0
    dispatched_ns: int = 0
    """The ticket was put into the channel. Then: a worker took it, fetched all rows, collated them, sent the batch."""
    received_ns: int = 0
    fetched_ns: int = 0
    collated_ns: int = 0
    sent_ns: int = 0
    cpu_ns: int = 0
    """CPU time of the worker since its last reading. ``runq_ns``: time in the run queue. 0: no reading with this ticket."""
    runq_ns: int = 0
    metered_ns: int = 0
    """Time at work that ``cpu_ns`` and ``runq_ns`` are about."""
    slow_row: int = -1
    """The row that took longest, for ``slow_ns``. -1: rows were not timed."""
    slow_ns: int = 0


STEP_COLUMNS = StepRow._fields
"""The names of the columns, in the order of the row."""

MEMORY_COLUMNS = ("at_ns", "worker", "pid", "pss_bytes", "private_bytes")
"""One row per process that was weighed and moment: ``worker`` is -1 for the training process."""

CALL_MOMENTS = ("asked_ns", "got_ns", "planned_ns", "given_ns")
MOMENTS = (*CALL_MOMENTS, "dispatched_ns", "received_ns", "fetched_ns", "collated_ns", "sent_ns")
"""Of these columns, those that name a moment: of the call of ``next()``, and of the ticket."""


@dataclass(slots=True)
class Run:
    """Which run this is."""

    id: str
    pid: int
    argv: list[str]
    began_unix_ns: int
    began_ns: int
    rank: int = 0
    world_size: int = 1
    ended: bool = False
    """Whether it came to its end. False: it is under way, or was killed."""
    exit: str | None = None
    """How the script ended, when somebody watched it: "0", "1", "SIGKILL"."""


@dataclass(slots=True)
class Machine:
    """Facts about the machine, read once. ``missing`` says for facts that are None why they are."""

    cpus: int | None = None
    affinity: int | None = None
    quota: float | None = None
    usable: int | None = None
    usable_reason: str | None = None
    local_ranks: int = 1
    memory_bytes: int | None = None
    available_bytes: int | None = None
    cgroup_limit_bytes: int | None = None
    shm_bytes: int | None = None
    shm_free_bytes: int | None = None
    descriptors: int | None = None
    gil: bool | None = None
    accelerators: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Load:
    """What the machine did while the loader was at work: differences of counters. None: the kernel does not tell."""

    wall_ns: int = 0
    busy_cpu_ns: int | None = None
    """CPU time of everybody on this machine."""
    own_cpu_ns: int | None = None
    """CPU time of this process and its workers."""
    parent_cpu_ns: int | None = None
    loop_cpu_ns: int | None = None
    loop_runq_ns: int | None = None
    """The thread that iterates: on a CPU, and ready without one."""
    steal_ns: int | None = None
    iowait_ns: int | None = None
    quota_periods: int | None = None
    throttled_periods: int | None = None
    throttled_ns: int | None = None
    pressure_ns: int | None = None
    """Time during which some process of the machine waited for a CPU (PSI)."""


@dataclass(slots=True)
class Totals:
    """Sums over the whole run of a loader. ``wait_ns`` is all that the consumer waited: in ``iter()`` and in ``next()``."""

    epochs: int = 0
    steps: int = 0
    estimated_steps: int = 0
    """Of ``steps``, in a loader that makes hundreds a second: their waits were divided like the ones before, not each by itself."""
    rows: int = 0
    bytes: int | None = None
    wall_ns: int = 0
    wait_ns: int = 0
    open_ns: int = 0
    """Of ``wait_ns``: in ``iter()``, and at the ends of epochs."""
    step_ns: int = 0
    """After each batch, until the next was asked for: what the training loop did."""
    idle_ns: int = 0
    """Such gaps that are longer than 10 s: not part of the steps."""
    ready: int = 0
    depth: int = 0
    """Sum over steps; divide by ``steps``."""
    first_batch_ns: int | None = None
    """From the first ``iter()`` to the first batch."""
    hidden_ns: int | None = None
    """Of ``wait_ns``: while the accelerator still had work. None: no accelerator, or not measured."""
    copied_ns: int | None = None
    """Copies to the device took so long there, by timing some of them. None: there were none, or the device times nothing.
    What is not in the stage ``copy`` was hidden behind the training loop.
    """
    wake_ns: list[int] = field(default_factory=list)
    """Histogram (powers of two, in microseconds) of how late the consumer heard of a batch it waited for."""
    wait_histogram: list[int] = field(default_factory=list)
    batches: int = 0
    empty_batches: int = 0
    worker_deaths: int = 0
    stalls: int = 0
    bad_samples: int = 0
    window: int | None = None


@dataclass(slots=True)
class Blame:
    """Some of the consumer's wait: where, whose, why. ``worker`` is -1 for the parent."""

    stage: str
    worker: int
    cause: str
    ns: int


@dataclass(slots=True)
class WorkerRecord:
    """One worker over its life. ``busy_ns`` = cpu + run-queue + off, of which ``metered_ns`` has readings. None: not told."""

    worker: int
    pid: int | None = None
    tasks: int = 0
    rows: int = 0
    busy_ns: int = 0
    metered_ns: int = 0
    cpu_ns: int = 0
    runq_ns: int = 0
    off_ns: int = 0
    threads: int | None = None
    process_cpu_ns: int | None = None
    """Of all its threads, since its first task; ``cpu_ns`` is that of the thread that makes batches."""
    pss_bytes: int | None = None
    private_bytes: int | None = None
    private_growth_bytes: int | None = None
    looks: int = 0
    """How often it was looked at while the loop took batches."""
    locked_looks: int = 0
    """And how often it then slept until another process gave up a lock."""


@dataclass(slots=True)
class SlowestSample:
    """One of the slowest samples. ``index`` is the dataset's, None where it is not known (streams)."""

    index: Any
    ns: int
    worker: int
    epoch: int
    seq: int
    row: int
    blamed_ns: int = 0
    """The part of the consumer's wait that it caused."""


@dataclass(slots=True)
class Event:
    """Something that happened: restart, bad_sample, stall, start, tuner action…, with its reason in words."""

    at_ns: int
    kind: str
    reason: str


@dataclass(slots=True)
class Period:
    """A stretch of the run in sums, for curves: neighbours are merged when there are too many."""

    began_ns: int
    ended_ns: int
    steps: int
    wait_ns: int
    step_ns: int
    causes: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Concurrency:
    """CPU time per row by how many workers were at work: what tells memory bandwidth from honest compute."""

    workers: int
    rows: int
    cpu_ns: int


@dataclass(slots=True)
class Option:
    """One option and why it has its value."""

    value: Any
    why: str


@dataclass(slots=True)
class ReceiptSummary:
    """What one epoch handed over, in digests (docs/receipts.md). Those of ranks and legs add up, modulo 2^64.

    ``resumed``: it began from a state. ``digest`` depends on the order, ``samples_digest`` does not.
    """

    epoch: int
    rank: int
    world_size: int
    resumed: bool
    first_batch: int
    batches: int
    samples: int
    finished: bool
    seed: int
    digest: str
    samples_digest: str
    bad_samples: int = 0
    failed_batches: int = 0


@dataclass(slots=True)
class CacheUse:
    """What sample caches did for a loader (``stoker.cache``, ``stoker.cached``), summed over its workers.

    ``passed``: samples that could not be stored, or that found no room. ``saved_ns``: worker time that hits saved, at the price
    that making the same samples had.
    """

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    stored_bytes: int = 0
    saved_ns: int = 0
    passed: int = 0

    @property
    def hit_share(self) -> float | None:
        """Hits among all samples that were asked for. None: nothing was asked for."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None


@dataclass(slots=True)
class LoaderRecord:
    """All about one loader."""

    name: str
    engine: str
    """"stoker" or "torch"."""
    executor: str
    """One of ``arguments.EXECUTORS``. Ask ``kind`` for its traits."""
    dataset: str
    site: str | None = None
    """Where in the script it was made, "train.py:31"."""
    options: dict[str, Option] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    load: Load = field(default_factory=Load)
    blame: list[Blame] = field(default_factory=list)
    workers: list[WorkerRecord] = field(default_factory=list)
    concurrency: list[Concurrency] = field(default_factory=list)
    slowest: list[SlowestSample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    events_dropped: int = 0
    periods: list[Period] = field(default_factory=list)
    memory: dict[str, list[int]] = field(default_factory=dict)
    """Columns (MEMORY_COLUMNS), by time: what the processes occupied, each some 120 times at most."""
    steps: dict[str, list[int]] = field(default_factory=dict)
    """Columns (STEP_COLUMNS): the first steps of the run and the last ones."""
    steps_dropped: int = 0
    """Rows that were left out between them."""
    receipts: list[ReceiptSummary] = field(default_factory=list)
    """Of the last 100 epochs."""
    cache: CacheUse | None = None
    """None: no cache was used, or an earlier version wrote this."""
    samples: int | None = None
    """``len(dataset)``. None: a stream, or not known."""
    sample_bytes: int | None = None
    """The bytes of a sample as it stands in a batch."""

    @property
    def kind(self) -> ExecutorKind:
        """The traits of its executor."""
        return executor_kind(self.executor)


@dataclass(slots=True)
class RunRecord:
    """One run. ``as_dict`` and ``from_dict`` are exact inverses."""

    run: Run
    machine: Machine
    loaders: list[LoaderRecord] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON. Nothing in it is shared with the record."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "run": asdict(self.run),
            "machine": asdict(self.machine),
            "loaders": [_plain(each) for each in self.loaders],
        }

    @classmethod
    def from_dict(cls, data: Any) -> RunRecord:
        """Raises RecordError for what is no record, or one of a newer version."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise RecordError("this is no run record of stoker: it has no format 'stoker-run'")
        version = data.get("version")
        if not isinstance(version, int):
            raise RecordError("this run record does not say its version")
        if version > VERSION:
            raise RecordError(
                f"this run record has version {version}, and this stoker reads up to {VERSION}: upgrade stoker to read it"
            )
        try:
            loaders = [_loader(each) for each in data["loaders"]]
            return cls(_made(Run, data["run"]), _made(Machine, data["machine"]), loaders)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError(f"this run record is damaged: {type(error).__name__}: {error}") from error


def dumps(record: RunRecord) -> str:
    """One line of JSON."""
    return json.dumps(record.as_dict(), separators=(",", ":"), default=repr, allow_nan=False)


_TYPES: dict[str, type | tuple[type, ...]] = {
    "int": int, "int | None": (int, NoneType), "float | None": (int, float, NoneType), "str": str,
    "str | None": (str, NoneType), "bool": bool, "list[int]": list, "dict[str, int]": dict,
    "list[str]": list, "dict[str, str]": dict,
}  # fmt: skip
"""By declared type of a field: the types that a file may hold, checked here so that no reader fails later."""
_LARGEST = (1 << 63) - 1


def _plain(loader: LoaderRecord) -> dict[str, Any]:
    """As ``asdict``, which would take 100 ms for the table of steps."""
    plain = asdict(replace(loader, memory={}, steps={}))
    plain["memory"] = {name: column[:] for name, column in loader.memory.items()}
    plain["steps"] = {name: column[:] for name, column in loader.steps.items()}
    return plain


def _made(kind: Any, data: dict[str, Any]) -> Any:
    """A dataclass from a dict; entries that a later minor change added are left out."""
    found = {each.name: data[each.name] for each in fields(kind) if each.name in data}
    for each in fields(kind):
        allowed = _TYPES.get(str(each.type))
        if allowed is None or each.name not in found:
            continue
        value = found[each.name]
        if not isinstance(value, allowed) or not _is_sane(value, str if "str]" in str(each.type) else int):
            raise ValueError(f"{each.name} of a {kind.__name__} is {_shown(value)}")
    return kind(**found)


def _is_sane(value: Any, held: type) -> bool:
    """Whether a whole number can be reckoned with, and a list or dict holds what it should."""
    if isinstance(value, int):
        return -_LARGEST <= value <= _LARGEST
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(isinstance(each, held) and _is_sane(each, held) for each in inner)


def _shown(value: Any) -> str:
    """Return a text, also of a number with thousands of digits, of which Python makes none."""
    return "out of range" if isinstance(value, int) and not _is_sane(value, int) else f"{value!r:.40}"


def _loader(data: dict[str, Any]) -> LoaderRecord:
    made: LoaderRecord = _made(LoaderRecord, data)
    made.options = {key: _made(Option, each) for key, each in data["options"].items()}
    made.totals = _made(Totals, data["totals"])
    made.load = _made(Load, data["load"])
    for name, kind in (
        ("blame", Blame), ("workers", WorkerRecord), ("concurrency", Concurrency), ("slowest", SlowestSample),
        ("events", Event), ("periods", Period),
    ):  # fmt: skip
        setattr(made, name, [_made(kind, each) for each in data[name]])
    made.receipts = [_made(ReceiptSummary, each) for each in data.get("receipts", ())]
    found = data.get("cache")
    made.cache = None if found is None else _made(CacheUse, found)
    made.steps = _columns(made.steps, STEP_COLUMNS, "steps")
    made.memory = _columns(made.memory, MEMORY_COLUMNS, "memory")
    return made


def _columns(columns: dict[str, list[int]], names: tuple[str, ...], what: str) -> dict[str, list[int]]:
    """Return the known columns, which are all of one length."""
    if any(name not in names for name in columns):
        columns = {name: column for name, column in columns.items() if name in names}
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError(f"columns of {what} differ in length")
    for name, column in columns.items():
        if set(map(type, column)) - {int} or (column and max(max(column), -min(column)) > _LARGEST):
            raise ValueError(f"{name} of its {what} holds something other than whole numbers")
    return columns
