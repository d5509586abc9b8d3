"""One trial of ``--bisect``: a real loader over the target, with one thing changed, over a few batches. In a sandbox."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.data

from stoker._tools.doctor.facts.trial import BisectionBaseline, BisectionOutcome
from stoker._tools.doctor.probes.process import start_method
from stoker._tools.probes import target
from stoker._tools.sandbox.subject import Subject
from stoker.arguments import OWN

_TRANSFORMS = ("transform", "transforms", "target_transform")
_ARGUMENTS = ("collate_fn", "worker_init_fn", "pin_memory", "persistent_workers")
_KEPT = tuple(each.name for each in OWN if each.bisected)
_DEEPEST = 4
_MOST_BATCHES = 17
_SOFT_S = 5.0
_TEXT = 6000
_kept: list[Any] = []
"""Iterators that were left. They end with the process: torch would wait for seconds for their workers."""


def probe(subject: Subject) -> BisectionOutcome | BisectionBaseline:
    """What ``subject.trial`` asks for: "look" tells what there is to change, else its setting is tried."""
    asked = dict(subject.trial)
    if asked.pop("look", False):
        return _own(subject)
    return _tried(subject, **asked)


def _own(subject: Subject) -> BisectionBaseline:
    context = subject.arguments.get("multiprocessing_context")
    method = start_method() if context is None else context.get_start_method()
    parts = [f"{path}.{name}" for path, _, name in _transforms(subject.dataset)]
    for name in _ARGUMENTS:
        value = subject.arguments.get(name)
        if value and not (name == "collate_fn" and _is_torchs(value)):
            parts.append(name)
    workers = subject.arguments.get("num_workers") or 0
    methods = tuple(
        each for each in multiprocessing.get_all_start_methods() if each in ("fork", "forkserver", "spawn")
    )
    return BisectionBaseline(workers, method, methods, tuple(parts), target.engine(subject.loader))


def _tried(
    subject: Subject,
    *,
    workers: int,
    method: str | None,
    without: list[str],
    one_thread: bool,
    engine: str | None,
) -> BisectionOutcome:
    start = time.perf_counter()
    batches = 0
    try:
        torch.manual_seed(0)  # the same order in every trial
        if one_thread:
            from stoker._runtime.worker.process.process_setup import single_thread

            single_thread()
        loader = _loader(subject, workers, method, set(without), engine or target.engine(subject.loader))
        iterator = iter(loader)
        _kept.append((loader, iterator))
        for _ in iterator:
            batches += 1
            if batches >= min(2 * workers + 1, _MOST_BATCHES) or time.perf_counter() - start > _SOFT_S:
                break
    except BaseException as error:
        _kept.append(error)
        text = "".join(traceback.format_exception(error))
        return BisectionOutcome("error", batches, time.perf_counter() - start, text[-_TEXT:])
    return BisectionOutcome("ok", batches, time.perf_counter() - start)


def _loader(subject: Subject, workers: int, method: str | None, without: set[str], engine: str) -> Any:
    given = subject.arguments
    collate = None if "collate_fn" in without else given.get("collate_fn")
    if "collate_fn" in without:
        collate = list
    for path, holder, name in list(_transforms(subject.dataset)):
        if f"{path}.{name}" in without:
            setattr(holder, name, unchanged)
            # Without its transforms a sample may be what no collation takes: that is no answer to the question.
            collate = LenientCollate(collate)
    options: dict[str, Any] = {
        "num_workers": workers,
        "collate_fn": collate,
        "pin_memory": bool(given.get("pin_memory")) and "pin_memory" not in without,
    }
    if workers:
        context = given.get("multiprocessing_context") if method is None else method
        options |= {
            "multiprocessing_context": context,
            "prefetch_factor": given.get("prefetch_factor"),
            "persistent_workers": bool(given.get("persistent_workers"))
            and "persistent_workers" not in without,
            "worker_init_fn": None if "worker_init_fn" in without else given.get("worker_init_fn"),
        }
    if engine == "stoker":
        from stoker.loader import DataLoader

        if isinstance(subject.loader, DataLoader):
            options |= {name: getattr(subject.loader, name) for name in _KEPT}
        return DataLoader(subject.dataset, **options, **_batching(subject))
    return torch.utils.data.DataLoader(subject.dataset, **options, **_batching(subject))


def _batching(subject: Subject) -> dict[str, Any]:
    given = subject.arguments
    if given.get("batch_size") is None and given.get("batch_sampler") is not None:
        return {"batch_sampler": given["batch_sampler"]}
    found = {"batch_size": given.get("batch_size"), "drop_last": bool(given.get("drop_last"))}
    if not subject.is_stream:
        found["sampler"] = given.get("sampler")
    if found["batch_size"] is None:
        del found["drop_last"]
    return found


def _transforms(dataset: Any) -> Iterator[tuple[str, Any, str]]:
    """(path, holder, name) of transforms on a dataset and on datasets within it."""
    holders, seen = [("dataset", dataset)], {id(dataset)}
    for path, holder in holders:
        for name, value in list(getattr(holder, "__dict__", {}).items()):
            if name in _TRANSFORMS and callable(value) and value is not unchanged:
                yield path, holder, name
            elif isinstance(value, torch.utils.data.Dataset) and id(value) not in seen:
                seen.add(id(value))
                if path.count(".") < _DEEPEST:
                    holders.append((f"{path}.{name}", value))


def _is_torchs(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).startswith(("torch.utils.data", "stoker."))


def unchanged(*values: Any, **named: Any) -> Any:
    """Stands for a transform that is left out, however it is called."""
    if named:
        return named
    return values[0] if len(values) == 1 else values


class LenientCollate:
    """A collation that makes lists of what it cannot collate."""

    def __init__(self, collate: Any) -> None:
        self.collate = collate or torch.utils.data.default_collate

    def __call__(self, rows: Any) -> Any:
        try:
            return self.collate(rows)
        except Exception:
            return list(rows)
