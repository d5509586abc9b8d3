"""Traces of torch.profiler, packed or not: judged, reported, and merged with a run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random

from stoker._tools.render import text
from stoker._tools.report.page import build
from stoker._tools.report.page.material import Material
from stoker._tools.report.profiler import ranks, screen, verdict
from stoker._tools.report.profiler.reading import is_trace
from stoker._tools.report.trace import trace
from stoker.errors import TraceError
from tests.fuzz import mutation
from tests.fuzz.format import Format
from tests.unit.profiled import Profiled
from tests.unit.records import loader, run, steps


def _profiled() -> Profiled:
    found = Profiled(rank=0, world_size=2)
    for _ in range(5):
        with found.step():
            found.next(8)
            found.copy(1)
            found.launch(2)
            found.launch(1, "ncclKernel_AllReduce", stream=9)
            found.operation(1)
            found.memory(5 << 20)
        found.synchronize()
    return found


def _plain() -> list[bytes]:
    bare = Profiled()
    for _ in range(3):
        bare.next(5)
        bare.operation(3)
    return [_profiled().text().encode(), bare.text().encode(), json.dumps(_profiled().events).encode()]


def _packed() -> list[bytes]:
    return [gzip.compress(each, mtime=0) for each in _plain()]


def _judge(data: bytes, folder: Path) -> None:
    path = folder / "rank0.json"
    path.write_bytes(data)
    is_trace(path)
    found = verdict.judge(ranks.read([path]), price_per_hour=2.0, watts=300.0)
    screen.render(found)
    json.dumps(screen.as_json(found), default=repr)
    report = build.report(Material((), traces=found))
    text.render(report, 80)


def _merge(data: bytes, folder: Path) -> None:
    path = folder / "rank0.json.gz"
    path.write_bytes(data)
    trace.merge(_RECORD, path, folder / "both.json")
    json.loads((folder / "both.json").read_bytes())


def _pack(dice: Random, data: bytes) -> bytes:
    """Damage inside or outside of the packing."""
    if dice.random() < 0.5:
        return mutation.any_bytes(dice, data)
    inner = mutation.any_json(dice, gzip.decompress(data))
    return gzip.compress(inner, 1, mtime=0)


_RECORD = run(loader({("fetch", 0, "io"): 0.5}, steps=steps(4)))
FORMATS = (
    Format("trace", _plain, _judge, (TraceError,), mutation.any_json, weight=2),
    Format("packed-trace", _packed, _judge, (TraceError,), _pack),
    Format("merged-trace", _plain, _merge, (TraceError,), mutation.any_json, weight=2),
)
