"""Workers on a Ray cluster: one is started here, on loopback. Only when asked for: ``stoker demo --only ray``.

The same samples with workers of this machine and with few and many workers in Ray actors. Then an epoch in which a worker on the
cluster is killed, compared with an epoch without workers.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from stoker._record.finding import duration
from stoker._tools.demo import child
from stoker._tools.demo.act import ActContext, Tell
from stoker._tools.render.section import Part, Prose, Section, Table

TITLE = "Workers on a Ray cluster"
SECONDS = (35.0, 60.0)

_FEW, _MANY = 2, (4, 8)
"""Workers; the second for quick and whole."""
_WINDOW_S = (1.5, 3.0)
_PAUSE_S = 0.005
_BATCH = 16
_BATCHES = 40
_SEED = 2024
_LIMIT_S = 170.0
_STORE_BYTES = 200 << 20


def run(stage: ActContext) -> dict[str, Any]:
    """Run all of it in one process, which the cluster does not outlive."""
    reason = child.possible()
    if reason is None and importlib.util.find_spec("ray") is None:
        reason = "Ray is not installed: pip install 'stoker[ray]'"
    if reason is not None:
        return {"skipped": reason}
    which = 0 if stage.quick else 1
    return measured(stage.folder, _MANY[which], _WINDOW_S[which], stage.tell)


def measured(folder: str, many: int, window_s: float, tell: Tell) -> dict[str, Any]:
    """Rates of workers here, of few and of many on Ray; an epoch in which one there is killed."""
    found: dict[str, Any] = child.perform(
        _played, folder, many, window_s, _BATCHES, limit_s=_LIMIT_S, tell=tell
    )
    return found


def _played(tell: Tell, folder: str, many: int, window_s: float, batches: int) -> dict[str, Any]:
    """In the child: start the cluster, measure, stop it."""
    import ray

    from stoker._runtime.executors.ray.cluster import free_at_once

    tell("starting a cluster", 0.0)
    with free_at_once():
        ray.init(
            num_cpus=many + 1,
            object_store_memory=_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _node_ip_address="127.0.0.1",
        )
    try:
        rates = []
        settings = (("here", "process", _FEW), ("on Ray", "ray", _FEW), ("on Ray", "ray", many))
        for number, (where, executor, workers) in enumerate(settings):
            tell(f"{workers} workers {where}", 0.2 + 0.2 * number)
            rates.append({"where": where, "workers": workers, **_rate(executor, workers, window_s)})
        tell("a worker is killed", 0.8)
        wanted = _epoch(None, batches)
        return {
            "rates": rates,
            "batches": batches,
            "batch_size": _BATCH,
            "wanted": wanted,
            "killed": _epoch(folder, batches),
        }
    finally:
        ray.shutdown()


def _rate(executor: Any, workers: int, window_s: float) -> dict[str, float]:
    """Rows a second behind the first batches, and the seconds to the first."""
    import time

    import stoker
    from stoker._tools.demo.slow_samples import Paced

    with stoker.DataLoader(
        Paced(1 << 20, _PAUSE_S), _BATCH, num_workers=workers, executor=executor
    ) as loader:
        began = time.perf_counter()
        batches = iter(loader)
        next(batches)
        first_s = time.perf_counter() - began
        while time.perf_counter() - began < first_s + 3.0:  # until all workers are up
            next(batches)
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < window_s:
            next(batches)
            count += 1
        return {"rows_s": count * _BATCH / (time.perf_counter() - began), "first_s": first_s}


def _epoch(folder: str | None, batches: int) -> dict[str, Any]:
    """An epoch; with a folder, on Ray, and a sample in the middle kills its worker there once."""
    import hashlib
    import logging

    import torch

    import stoker
    from stoker._tools.demo.slow_samples import Deadly, Paced

    logging.getLogger("stoker").setLevel(logging.CRITICAL)  # a death is a warning, and here it is wanted
    torch.manual_seed(_SEED)
    rows = batches * _BATCH
    dataset = Paced(rows, 0.0) if folder is None else Deadly(rows, _PAUSE_S, str(Path(folder) / "killed"))
    digest = hashlib.sha256()
    indices: list[int] = []
    with stoker.DataLoader(
        dataset,
        _BATCH,
        shuffle=True,
        num_workers=0 if folder is None else _FEW,
        executor="inline" if folder is None else "ray",
    ) as loader:
        for places, values in loader:
            indices += places.tolist()
            digest.update(places.numpy().tobytes() + values.numpy().tobytes())
        deaths = loader.stats()["worker_deaths"]
    return {
        "digest": digest.hexdigest(),
        "samples": len(indices),
        "once": sorted(indices) == list(range(rows)),
        "deaths": deaths,
    }


def lines(result: dict[str, Any]) -> list[str]:
    """The rates, and what arrived."""
    if "skipped" in result:
        return [f"not measured: {result['skipped']}"]
    here, few, many = result["rates"]
    return [
        f"rows of 5 ms, a second: {here['workers']} workers here {here['rows_s']:,.0f}",
        f"on Ray: {few['workers']} workers {few['rows_s']:,.0f}, {many['workers']} workers {many['rows_s']:,.0f}",
        _arrived(result),
    ]


def _arrived(result: dict[str, Any]) -> str:
    killed, rows = result["killed"], result["batches"] * result["batch_size"]
    equal = "bit for bit" if killed["digest"] == result["wanted"]["digest"] else "NOT as without workers"
    once = "once each" if killed["once"] else "not once each"
    return f"a worker there killed: {killed['samples']} of {rows} samples, {once}, {equal}"


def sections(result: dict[str, Any]) -> list[Section]:
    """A table of the rates, and the kill in words."""
    if "skipped" in result:
        return [Section("demo-ray", TITLE, (Prose(f"Not measured: {result['skipped']}."),))]
    rows = tuple(
        (
            f"{each['workers']} {each['where']}",
            f"{each['rows_s']:,.0f}",
            f"{each['rows_s'] / result['rates'][0]['rows_s']:.1f}×",
            duration(each["first_s"]),
        )
        for each in result["rates"]
    )
    parts: list[Part] = [
        Prose(
            "Samples wait 5 ms each, as for storage, so that workers gain past the CPUs of this machine. The cluster was started "
            "here for this, with more CPUs on paper than there are."
        ),
        Table(
            "Workers here and on Ray",
            ("workers", "rows a second", "to those here", "iter() to the first batch"),
            rows,
            numeric=frozenset({1, 2, 3}),
        ),
        Prose(
            f"Then a sample killed its worker on the cluster ({result['killed']['deaths']} died): {_arrived(result)}. The rows "
            "are compared with those of an epoch without workers, random numbers included."
        ),
    ]
    return [Section("demo-ray", TITLE, tuple(parts))]
