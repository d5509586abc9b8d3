"""Traces as torch.profiler writes them on a machine with devices: a little model of a host that launches and of streams that work.

    run = Profiled()
    for _ in range(5):
        with run.step():
            run.next(8)             # 8 ms in the loader's __next__
            run.launch(2)           # a kernel of 2 ms, which runs when its stream is free

Times are given in milliseconds. The host goes on at once after a launch, as it does in life.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PID, MAIN, BASE_US = 4000, 4000, 3_967_074_480_000.0
CALL_MS, LATENCY_MS = 0.005, 0.002


class Profiled:
    def __init__(self, *, rank: int | None = None, world_size: int | None = None, device: int = 0) -> None:
        self.events: list[dict[str, Any]] = []
        self.now_ms = 0.0
        self.device = device
        self.free_ms: dict[tuple[int, int], float] = {}
        self.entries: dict[str, Any] = {
            "schemaVersion": 1,
            "host_name": "node",
            "baseTimeNanoseconds": 1_790_857_026 * 10**9,
        }
        if rank is not None:
            self.entries["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world_size}
        self._links = 0
        self._steps = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        began_ms = self.now_ms
        yield
        self._host("user_annotation", f"ProfilerStep#{self._steps}", began_ms, self.now_ms)
        self._steps += 1

    def next(
        self, ms: float, *, iterator: str = "_MultiProcessingDataLoaderIter", thread: int = MAIN
    ) -> None:
        label = f"enumerate(DataLoader)#{iterator}.__next__"
        self._host("user_annotation", label, self.now_ms, self.now_ms + ms, thread=thread)
        if thread == MAIN:
            self.now_ms += ms

    def operation(self, ms: float, name: str = "aten::add") -> None:
        self._host("cpu_op", name, self.now_ms, self.now_ms + ms)
        self.now_ms += ms

    def python(self, ms: float) -> None:
        """Something that leaves no event."""
        self.now_ms += ms

    def launch(
        self,
        ms: float,
        name: str = "gemm",
        *,
        call_ms: float = CALL_MS,
        stream: int = 7,
        late_ms: float = 0.0,
    ) -> float:
        """A kernel. ``late_ms``: how long the device lets it wait though it is there. When it ends."""
        link = self._call("cudaLaunchKernel", call_ms)
        return self._work("kernel", name, ms, stream, link, late_ms=late_ms)

    def copy(self, ms: float, *, pinned: bool = False, stream: int = 7, megabytes: int = 10) -> float:
        link = self._call("cudaMemcpyAsync", CALL_MS)
        name = f"Memcpy HtoD ({'Pinned' if pinned else 'Pageable'} -> Device)"
        return self._work("gpu_memcpy", name, ms, stream, link, bytes=megabytes * 10**6)

    def synchronize(self) -> None:
        done_ms = max([self.now_ms, *self.free_ms.values()]) + LATENCY_MS
        self._host("cuda_runtime", "cudaStreamSynchronize", self.now_ms, done_ms)
        self.now_ms = done_ms

    def memory(self, total: int) -> None:
        args = {"Total Allocated": total, "Device Id": self.device, "Device Type": 1, "Bytes": 1}
        event = {
            "ph": "i",
            "cat": "cpu_instant_event",
            "name": "[memory]",
            "s": "t",
            "ts": _us(self.now_ms),
            "args": args,
        }
        self.events.append({**event, "pid": PID, "tid": MAIN})

    def _call(self, name: str, ms: float) -> int:
        self._links += 1
        self._host("cuda_runtime", name, self.now_ms, self.now_ms + ms, correlation=self._links)
        self.now_ms += ms
        return self._links

    def _work(
        self, category: str, name: str, ms: float, stream: int, link: int, late_ms: float = 0.0, **args: Any
    ) -> float:
        began_ms = max(self.now_ms + LATENCY_MS, self.free_ms.get((self.device, stream), 0.0) + late_ms)
        self.free_ms[self.device, stream] = began_ms + ms
        args |= {"device": self.device, "stream": stream, "correlation": link}
        self._event(category, name, began_ms, began_ms + ms, self.device, stream, args)
        return began_ms + ms

    def _host(
        self, category: str, name: str, began_ms: float, ended_ms: float, *, thread: int = MAIN, **args: Any
    ) -> None:
        self._event(category, name, began_ms, ended_ms, PID, thread, args)

    def _event(
        self,
        category: str,
        name: str,
        began_ms: float,
        ended_ms: float,
        pid: int,
        tid: int,
        args: dict[str, Any],
    ) -> None:
        event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
        self.events.append({**event, "ts": _us(began_ms), "dur": (ended_ms - began_ms) * 1000, "args": args})

    def text(self) -> str:
        """Head, events, tail, as kineto lays them out."""
        head = json.dumps(self.entries)[:-1]
        return (
            head
            + ', "traceEvents": [\n'
            + ",\n".join(map(json.dumps, self.events))
            + '\n], "traceName": "x"}\n'
        )

    def write(self, path: Path) -> Path:
        data = self.text().encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path


def _us(ms: float) -> float:
    return round(BASE_US + ms * 1000, 3)
