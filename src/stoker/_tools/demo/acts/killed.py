"""Kills a worker in mid-epoch (SIGKILL, as the out-of-memory killer does), and checks which batches arrive.

The same epoch three times: with stoker's loader without workers, which says what is to arrive; with stoker's and two workers,
one of which is killed; with torch's and two workers, one of which is killed after the same batch.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

from stoker._record.finding import duration
from stoker._tools.demo import child
from stoker._tools.demo.act import ActContext, Tell
from stoker._tools.render.section import Chart, Code, Part, Prose, Section, Table
from stoker._tools.report.page import vega

TITLE = "A worker killed on purpose"
SECONDS = (2.0, 4.0)

WORKERS = 2
_BATCH = 16
_PAUSE_S = 0.003
_BATCHES = (24, 60)
"""Quick and whole."""
_SEED = 2024
_LIMIT_S = 30.0


def run(stage: ActContext) -> dict[str, Any]:
    """All three, each in a process of its own."""
    reason = child.possible()
    if reason is not None:
        return {"skipped": reason}
    batches = _BATCHES[0 if stage.quick else 1]
    return measured(batches, _PAUSE_S, stage.tell)


def measured(batches: int, pause_s: float, tell: Tell) -> dict[str, Any]:
    """An epoch of so many batches. The worker is killed when a third of them has arrived."""
    kill_after = max(1, batches // 3)
    told = {}
    for number, (name, engine, workers) in enumerate(
        (("wanted", "stoker", 0), ("stoker", "stoker", WORKERS), ("torch", "torch", WORKERS))
    ):
        tell("what is to arrive" if name == "wanted" else f"{name}, a worker killed", number / 3)
        told[name] = child.perform(_epoch, engine, workers, batches, pause_s, kill_after, limit_s=_LIMIT_S)
    tell("", 1.0)
    return {"batches": batches, "batch_size": _BATCH, "kill_after": kill_after, **told}


def _epoch(
    tell: Tell, engine: str, workers: int, batches: int, pause_s: float, kill_after: int
) -> dict[str, Any]:
    """In the child: one epoch; with workers, the first of them is killed on the way."""
    import hashlib
    import logging
    import os
    import signal
    import time

    import torch.utils.data

    import stoker
    from stoker._tools.demo.slow_samples import Paced

    logging.getLogger("stoker").setLevel(logging.CRITICAL)  # a death is a warning, and here it is wanted
    torch.manual_seed(_SEED)
    loader_type = torch.utils.data.DataLoader if engine == "torch" else stoker.DataLoader
    loader: Any = loader_type(
        Paced(batches * _BATCH, pause_s if workers else 0.0),
        batch_size=_BATCH,
        shuffle=True,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )
    arrivals_s: list[float] = []
    digest = hashlib.sha256()
    indices: list[int] = []
    killed_s = failure = None
    began = time.perf_counter()
    iterator = iter(loader)
    try:
        for number, (places, values) in enumerate(iterator, start=1):
            arrivals_s.append(time.perf_counter() - began)
            indices += places.tolist()
            digest.update(places.numpy().tobytes() + values.numpy().tobytes())
            if workers and number == kill_after:
                killed_s = time.perf_counter() - began
                os.kill(iterator._workers[0].pid, signal.SIGKILL)
    except Exception as error:
        if killed_s is None and workers:
            raise
        failure = f"{type(error).__name__}: {error}"
    ended_s = time.perf_counter() - began
    return {
        "arrivals_s": arrivals_s,
        "killed_s": killed_s,
        "ended_s": ended_s,
        "digest": digest.hexdigest(),
        "samples": len(indices),
        "once": len(set(indices)) == len(indices) == batches * _BATCH,
        "failure": failure,
    }


def gaps_s(told: dict[str, Any]) -> tuple[float, float]:
    """Between two batches: the usual (the median), and the longest after the kill."""
    moments = told["arrivals_s"]
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    after = [gap for gap, later in zip(gaps, moments[1:], strict=True) if later > told["killed_s"]]
    return median(gaps or [0.0]), max(after, default=0.0)


def lines(result: dict[str, Any]) -> list[str]:
    """What arrived with each of them."""
    if "skipped" in result:
        return [f"not measured: {result['skipped']}"]
    return [f"stoker: {_arrived(result, 'stoker')}", f"torch: {_arrived(result, 'torch')}"]


def _arrived(result: dict[str, Any], name: str) -> str:
    told, wanted = result[name], result["wanted"]
    samples = result["batches"] * result["batch_size"]
    if told["failure"] is not None:
        kind = told["failure"].partition(":")[0]
        return f"the epoch ended after {len(told['arrivals_s'])} of {result['batches']} batches ({kind})"
    if name == "torch":
        return f"{told['samples']} of {samples} samples arrived"
    equal = (
        "bit for bit as without workers" if told["digest"] == wanted["digest"] else "NOT as without workers"
    )
    return (
        f"{told['samples']} of {samples} samples, {'once each' if told['once'] else 'not once each'}, {equal}"
    )


def sections(result: dict[str, Any]) -> list[Section]:
    """Batches over time with both, the kill marked."""
    if "skipped" in result:
        return [Section("demo-killed", TITLE, (Prose(f"Not measured: {result['skipped']}."),))]
    stoker, torch = result["stoker"], result["torch"]
    usual_s, longest_s = gaps_s(stoker)
    parts: list[Part] = [
        Prose(
            f"When {result['kill_after']} of {result['batches']} batches had arrived, one of {WORKERS} workers was sent "
            "SIGKILL, as the kernel does when memory ends. Samples are shuffled and draw random numbers."
        ),
        _chart(result),
        Prose(
            f"stoker: {_arrived(result, 'stoker')}. What the worker had begun was made again by others; a batch comes "
            f"every {duration(usual_s)}, and the longest wait after the kill was {duration(longest_s)}."
        ),
        Prose(f"torch: {_arrived(result, 'torch')}."),
    ]
    if torch["failure"] is not None:
        parts.append(Code(torch["failure"]))
    return [Section("demo-killed", TITLE, tuple(parts))]


def _chart(result: dict[str, Any]) -> Chart:
    engines = ("torch", "stoker")
    values = [
        {"loader": name, "s": moment, "batches": number}
        for name in engines
        for number, moment in enumerate(result[name]["arrivals_s"], start=1)
    ]
    by_loader = vega.painted("loader", {each: each for each in engines})
    x = vega.measured("s", "seconds since iter()")
    kills = [{"loader": name, "s": result[name]["killed_s"], "what": "worker killed"} for name in engines]
    spec = {
        "layer": [
            {
                "data": {"values": values},
                "mark": {"type": "line", "interpolate": "step-after", "point": {"size": 24}},
                "encoding": {
                    "x": x,
                    "y": vega.measured("batches", "batches delivered"),
                    "color": by_loader,
                    "tooltip": vega.tips(
                        ("loader", "loader"),
                        ("batches", "batches delivered"),
                        ("s", "seconds since iter()", ".3f"),
                    ),
                },
            },
            {
                "data": {"values": kills},
                "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 2},
                "encoding": {
                    "x": x,
                    "color": by_loader,
                    "tooltip": vega.tips(
                        ("loader", "loader"), ("what", "what"), ("s", "seconds since iter()", ".3f")
                    ),
                },
            },
        ]
    }
    rows = tuple(
        (
            name,
            f"{len(result[name]['arrivals_s'])} of {result['batches']}",
            f"{result[name]['samples']:,}",
            duration(result[name]["killed_s"]),
            duration(result[name]["ended_s"]),
            "ended in an error" if result[name]["failure"] else "complete",
        )
        for name in engines
    )
    table = Table(
        "An epoch in which a worker is killed",
        ("loader", "batches", "samples", "killed after", "ended after", "how"),
        rows,
        numeric=frozenset({1, 2, 3, 4}),
    )
    summary = f"stoker goes on after the kill and delivers all batches; torch ends after {len(result['torch']['arrivals_s'])}."
    if result["torch"]["failure"] is None or result["stoker"]["failure"] is not None:
        summary = (
            "Batches delivered over time with both loaders, and the moment at which a worker was killed."
        )
    return Chart(
        "demo-killed-chart", "Batches delivered; a worker is killed at the dashed lines", summary, spec, table
    )
