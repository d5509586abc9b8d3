"""Reads what matters of a trace into columns: a million events are a few arrays, not a million objects."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker._tools.report.profiler.reading import Event, TraceFile
from stoker._tools.report.trace.chrome import CATEGORY

Column = npt.NDArray[np.int64]

COMPUTE, COMM, COPY_PAGEABLE, COPY_PINNED, OTHER = range(5)
"""What a device was at: kernels, NCCL's kernels, copies from the host out of pageable and pinned memory, other copies and fills."""

LABEL = re.compile(r"enumerate\(DataLoader\)#(\w+)\.__next__")
_STEP = re.compile(r"ProfilerStep#(\d+)")
_ANNOTATIONS = ("enumerate(DataLoader)#", "ProfilerStep#")
"""Labels of the host. Up to torch 1.10 they have the category of operations."""
_COMM = re.compile(r"nccl|rccl|oneccl", re.IGNORECASE)
_LAUNCH = re.compile(r"launch", re.IGNORECASE)
_WAITS = re.compile(r"Synchronize|^(cuda|hip)Memcpy(WithStream)?$|^aten::(item|_local_scalar_dense)$")

_FAR = 1 << 61
"""No moment, and no count, is beyond: what is comes from a damaged file."""
_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "concurrent_kernel"}
_RUNTIME = {
    "cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "xpu_runtime", "mtia_runtime", "privateuse1_runtime",
    "privateuse1_driver",
}  # fmt: skip
_OPERATION = {"cpu_op", "operator"}
"""Categories, in small letters: those of today, and of torch 1.8 to 1.10."""


@dataclass(slots=True)
class Rows:
    """Events of one kind, in the order of the file."""

    began: Column
    ended: Column
    where: Column
    """The thread, by its number in the file, or the device."""
    what: Column
    """What a device was at; the number of a step."""
    link: Column
    """The number that work on a device has in common with the call that began it; -1: none."""

    def __len__(self) -> int:
        return len(self.began)

    def chosen(self, which: npt.NDArray[np.bool_]) -> Rows:
        """Return the rows for which it is true."""
        return Rows(*(each[which] for each in (self.began, self.ended, self.where, self.what, self.link)))


@dataclass(slots=True)
class Timeline:
    """One trace file. All moments are nanoseconds from one moment of the file."""

    path: Path
    device: Rows
    runtime: Rows
    operations: Rows
    waits: Rows
    """Calls on the host that return when the device is done."""
    labels: Rows
    """The loader's ``__next__``."""
    steps: Rows
    memory: dict[str, tuple[Column, Column]]
    """By device: moments, and how many bytes were allocated then."""
    launches: npt.NDArray[np.bool_]
    """Which of the calls in ``runtime`` launch work."""
    copied_bytes: Counter[int]
    iterators: Counter[str]
    """Classes of the iterators that carried the label."""
    rank: int | None = None
    world_size: int | None = None
    process: str = ""
    """Host and process, where the file tells them: files of one process are one rank's."""
    notes: list[str] = field(default_factory=list)
    ours: bool = False
    """Whether it holds what stoker itself wrote: that is not judged here."""


class _Growing:
    def __init__(self) -> None:
        self.columns = tuple(array("q") for _ in range(5))

    def add(self, *values: int) -> None:
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)

    def done(self) -> Rows:
        return Rows(*map(_column, self.columns))


def _column(values: array[int]) -> Column:
    """The same memory."""
    return np.frombuffer(values, dtype=np.int64) if values else np.zeros(0, dtype=np.int64)


class _EventSorter:
    """Sorts events into kinds, one by one."""

    def __init__(self) -> None:
        kinds = ("device", "runtime", "operations", "waits", "labels", "steps")
        self.rows = {name: _Growing() for name in kinds}
        self.launches = array("b")
        self.memory: dict[str, tuple[array[int], array[int]]] = {}
        self.copied_bytes: Counter[int] = Counter()
        self.iterators: Counter[str] = Counter()
        self.threads: dict[object, int] = {}
        self.devices: dict[object, int] = {}
        self.pids: Counter[object] = Counter()
        self.known: dict[str, int] = {}
        """By name of a call: whether it launches (1) or waits (2)."""

    def see(self, event: Event) -> None:
        phase = event.get("ph")
        if phase == "i" and event.get("name") == "[memory]":
            self._memory(event)
        if phase != "X":
            return
        try:
            began_ns = round(float(event["ts"]) * 1000)
            ended_ns = began_ns + round(float(event["dur"]) * 1000)
            category, name = str(event.get("cat", "")).lower(), str(event["name"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return
        if not -_FAR < began_ns <= ended_ns < _FAR:
            return
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if category in _DEVICE:
            self._device(began_ns, ended_ns, category, name, event, args)
        elif name.startswith(_ANNOTATIONS) and (category in _OPERATION or category == "user_annotation"):
            self._annotation(began_ns, ended_ns, name, event)
        elif category in _RUNTIME or category in _OPERATION:
            self._host(began_ns, ended_ns, category, name, event, args)

    def _device(
        self, began_ns: int, ended_ns: int, category: str, name: str, event: Event, args: dict[str, Any]
    ) -> None:
        kind = OTHER
        if "mem" not in category:
            kind = COMM if _COMM.search(name) else COMPUTE
        elif "HtoD" in name:
            kind = COPY_PAGEABLE if "Pageable" in name else COPY_PINNED
            self.copied_bytes[kind] += _int(args.get("bytes", args.get("Bytes")), 0)
        device = self.devices.setdefault(_key(args.get("device", event.get("pid"))), len(self.devices))
        self.rows["device"].add(began_ns, ended_ns, device, kind, _int(args.get("correlation"), -1))

    def _host(
        self, began_ns: int, ended_ns: int, category: str, name: str, event: Event, args: dict[str, Any]
    ) -> None:
        thread = self._thread(event)
        sort = self.known.get(name)
        if sort is None:
            sort = self.known[name] = 2 if _WAITS.search(name) else 1 if _LAUNCH.search(name) else 0
        if sort == 2:
            self.rows["waits"].add(began_ns, ended_ns, thread, 0, -1)
        if category in _OPERATION:
            self.rows["operations"].add(began_ns, ended_ns, thread, 0, -1)
        else:
            self.rows["runtime"].add(began_ns, ended_ns, thread, 0, _int(args.get("correlation"), -1))
            self.launches.append(sort == 1)

    def _annotation(self, began_ns: int, ended_ns: int, name: str, event: Event) -> None:
        if label := LABEL.search(name):
            self.rows["labels"].add(began_ns, ended_ns, self._thread(event), 0, -1)
            self.iterators[label[1]] += 1
        elif step := _STEP.fullmatch(name):
            self.rows["steps"].add(began_ns, ended_ns, self._thread(event), int(step[1]), -1)

    def _memory(self, event: Event) -> None:
        args = event.get("args")
        try:
            at_ns, total = round(float(event["ts"]) * 1000), int(args["Total Allocated"])  # type: ignore[index]
            kind, number = args.get("Device Type"), args.get("Device Id")  # type: ignore[union-attr]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return
        if not (-_FAR < at_ns < _FAR and -_FAR < total < _FAR):
            return
        where = "the host" if kind == 0 else f"device {number}"
        moments, totals = self.memory.setdefault(where, (array("q"), array("q")))
        moments.append(at_ns)
        totals.append(total)

    def _thread(self, event: Event) -> int:
        pid = _key(event.get("pid"))
        self.pids[pid] += 1
        return self.threads.setdefault((pid, _key(event.get("tid"))), len(self.threads))


def collect(path: Path) -> Timeline:
    """Read one trace. Raises TraceError."""
    file, collector = TraceFile(path), _EventSorter()
    ours = False
    for event in file.events():
        if event.get("cat") == CATEGORY:
            ours = True
        else:
            collector.see(event)
    ranks = file.entries.get("distributedInfo")
    ranks = ranks if isinstance(ranks, dict) else {}
    notes = [f"{path.name}: {file.damage}."] if file.damage else []
    if file.skipped:
        notes.append(f"{path.name}: {file.skipped} damaged events were left out.")
    pid = collector.pids.most_common(1)[0][0] if collector.pids else ""
    memory = {
        where: (_column(moments), _column(totals)) for where, (moments, totals) in collector.memory.items()
    }
    return Timeline(
        path=path, **{name: rows.done() for name, rows in collector.rows.items()}, memory=memory,
        launches=np.array(collector.launches, dtype=bool), copied_bytes=collector.copied_bytes,
        iterators=collector.iterators, rank=_int(ranks.get("rank"), None), world_size=_int(ranks.get("world_size"), None),
        process=f"{file.entries.get('host_name', '')}:{pid}", notes=notes, ours=ours,
    )  # fmt: skip


def _int(value: Any, otherwise: Any) -> Any:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return number if -_FAR < number < _FAR else otherwise


def _key(value: Any) -> object:
    return value if isinstance(value, int | str) else repr(value)
