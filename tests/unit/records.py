"""Run records for tests, made from the few numbers that matter there. Times are given in seconds; what adds up is kept adding up.

loader({("fetch", 0, "io"): 0.6, ("fetch", 1, "io"): 0.3}, step_s=1.0)      # 0.9 s of waiting beside 1 s of steps
run(loader(...), loader(..., name="valid"))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stoker._record.schema import (
    STEP_COLUMNS,
    Blame,
    Load,
    LoaderRecord,
    Machine,
    Option,
    Run,
    RunRecord,
    Totals,
    WorkerRecord,
)

MS = 1_000_000
SECOND = 1000 * MS

Waits = Mapping[tuple[str, int, str], float]


def loader(waits_s: Waits | None = None, *, step_s: float = 1.0, **changed: Any) -> LoaderRecord:
    """A loader whose waiting went where ``waits_s`` says, by (stage, worker, cause).

    ``changed`` are other fields of LoaderRecord; ``options``, ``totals`` and ``load`` are dicts of what differs from the usual.
    """
    waits_s = waits_s or {}
    blame = [Blame(stage, worker, cause, int(s * SECOND)) for (stage, worker, cause), s in waits_s.items()]
    wait_ns = sum(each.ns for each in blame)
    wall_ns = wait_ns + int(step_s * SECOND)
    count = changed.pop("num_workers", 2)
    totals: dict[str, Any] = {
        "epochs": 1, "steps": 100, "batches": 100, "rows": 6400, "bytes": 6400 * 600_000, "wall_ns": wall_ns,
        "wait_ns": wait_ns, "step_ns": int(step_s * SECOND), "ready": 50, "depth": 100, "window": 2 * count,
        "first_batch_ns": 50 * MS, "wake_ns": [0] * 5 + [100], "wait_histogram": [0] * 5 + [50],
    }  # fmt: skip
    options: dict[str, Any] = {
        "num_workers": count, "batch_size": 64, "prefetch_factor": 2, "persistent_workers": False, "pin_memory": False,
        "in_order": True, "executor": "process",
    }  # fmt: skip
    load: dict[str, Any] = {
        "wall_ns": wall_ns, "busy_cpu_ns": wall_ns, "own_cpu_ns": wall_ns, "parent_cpu_ns": int(step_s * SECOND) // 4,
        "loop_cpu_ns": int(step_s * SECOND) // 4, "loop_runq_ns": 0,
        "steal_ns": 0, "iowait_ns": 0, "pressure_ns": 0,
    }  # fmt: skip
    options.update(changed.pop("options", {}))
    totals.update(changed.pop("totals", {}))
    load.update(changed.pop("load", {}))
    usual: dict[str, Any] = {
        "name": "loader", "engine": "stoker", "executor": "process", "dataset": "Images", "site": "train.py:31",
        "workers": [worker(place, busy_s=wall_ns / SECOND) for place in range(count)],
    }  # fmt: skip
    return LoaderRecord(
        **{**usual, **changed},
        options={key: Option(value, "given") for key, value in options.items()},
        totals=Totals(**totals),
        load=Load(**load),
        blame=blame,
    )


def worker(
    place: int, *, busy_s: float = 1.0, cpu: float = 0.1, runq: float = 0.0, **changed: Any
) -> WorkerRecord:
    """A worker by the shares of its time; the rest was off the CPU."""
    busy_ns = int(busy_s * SECOND)
    cpu_ns, runq_ns = int(busy_ns * cpu), int(busy_ns * runq)
    usual: dict[str, Any] = {
        "pid": 4000 + place, "tasks": 50, "rows": 3200, "busy_ns": busy_ns, "metered_ns": busy_ns, "cpu_ns": cpu_ns,
        "runq_ns": runq_ns, "off_ns": busy_ns - cpu_ns - runq_ns, "threads": 1, "process_cpu_ns": cpu_ns,
        "pss_bytes": 80 << 20, "private_bytes": 40 << 20, "private_growth_bytes": 1 << 20,
    }  # fmt: skip
    return WorkerRecord(worker=place, **{**usual, **changed})


def machine(**changed: Any) -> Machine:
    """Eight CPUs, no quota, and everything told."""
    usual: dict[str, Any] = {
        "cpus": 8, "affinity": 8, "usable": 8, "usable_reason": "this machine has 8 CPUs", "memory_bytes": 32 << 30,
        "available_bytes": 16 << 30, "shm_bytes": 16 << 30, "shm_free_bytes": 16 << 30, "descriptors": 1024, "gil": True,
        "versions": {"stoker": "0.1.0", "torch": "2.13.0", "python": "3.11.9"},
    }  # fmt: skip
    return Machine(**{**usual, **changed})


def run(*loaders: LoaderRecord, **changed: Any) -> RunRecord:
    """A run that came to its end; ``machine`` may be given."""
    facts = changed.pop("machine", None) or machine()
    usual: dict[str, Any] = {
        "id": "4000-1", "pid": 4000, "argv": ["train.py"], "began_unix_ns": 1_790_000_000 * SECOND, "began_ns": 7 * SECOND,
        "ended": True, "exit": "0",
    }  # fmt: skip
    return RunRecord(Run(**{**usual, **changed}), facts, list(loaders))


def steps(
    count: int, *, workers: int = 2, make_ms: int = 30, step_ms: int = 10, rows: int = 64
) -> dict[str, list[int]]:
    """The table of steps of a loader whose workers take ``make_ms`` for a batch and the trainer ``step_ms`` for a step.

    It is a true story: workers take tickets in turn as they become free, and batches are handed over in order.
    """
    table: dict[str, list[int]] = {name: [] for name in STEP_COLUMNS}
    free_ms = [0] * workers
    given_ms = [0] * count
    now_ms = 0
    for seq in range(count):
        window = 2 * workers
        dispatched_ms = given_ms[seq - window] if seq >= window else 0
        place = min(range(workers), key=free_ms.__getitem__)
        received_ms = max(free_ms[place], dispatched_ms)
        sent_ms = received_ms + make_ms
        free_ms[place] = sent_ms
        asked_ms = now_ms
        got_ms = max(asked_ms, sent_ms)
        now_ms = given_ms[seq] = got_ms
        row: dict[str, int] = {
            "asked_ns": asked_ms * MS, "got_ns": got_ms * MS, "planned_ns": got_ms * MS + 20_000,
            "given_ns": got_ms * MS + 50_000, "seq": seq, "worker": place, "rows": rows, "ready": int(sent_ms <= asked_ms),
            "batch_bytes": rows * 600_000, "dispatched_ns": dispatched_ms * MS, "received_ns": received_ms * MS,
            "fetched_ns": (sent_ms - 2) * MS, "collated_ns": (sent_ms - 1) * MS, "sent_ns": sent_ms * MS,
            "cpu_ns": make_ms * MS // 10, "metered_ns": make_ms * MS, "slow_row": seq % rows, "slow_ns": MS,
        }  # fmt: skip
        for name in STEP_COLUMNS:
            table[name].append(row.get(name, 0))
        now_ms += step_ms
    return table
