"""Examines the target: the current setting of its loader. Makes no sample."""

from __future__ import annotations

import inspect
import multiprocessing
import types
from typing import Any

from stoker._host.code_location import is_library
from stoker._record.dataset_identity import dataset_key, length_of
from stoker._runtime.simulation.setting import Setting
from stoker._tools.probes.target import engine, has_own_collate, imported_at, kept_arguments, site, whole
from stoker._tools.sandbox.subject import Subject
from stoker._tools.tune import knobs
from stoker._tools.tune.facts import Target


def probe(subject: Subject) -> Target:
    """Examine the objects. Of the user's code only ``__len__`` of the dataset and the sampler runs."""
    from stoker._runtime.executors.process.start_method import live_hazards

    loader, dataset = subject.loader, subject.dataset
    made = site(loader)
    return Target(
        name=subject.name,
        loader=loader is not None,
        setting=Setting() if loader is None else _setting(loader),
        batch_size=whole(subject.arguments.get("batch_size")),
        batches=_batches(subject),
        stream=subject.is_stream,
        asks_worker=not subject.is_stream or _asks_worker(subject),
        in_order=bool(getattr(loader, "in_order", True)),
        own_collate=loader is not None and has_own_collate(loader),
        hazards=tuple(each.module for each in live_hazards()),
        daemonic=bool(multiprocessing.current_process().daemon),
        site=str(made) if made else None,
        file=made.path if made else subject.file,
        others=len(subject.others),
        line=made.line if made else None,
        samples=None if subject.is_stream else length_of(dataset),
        key=dataset_key(dataset),
        dataset_class=type(dataset).__qualname__,
        imported=None if made is None else imported_at(made),
        kept=() if loader is None else kept_arguments(loader),
        written=() if loader is None else _written(loader),
    )


def _setting(loader: Any) -> Setting:
    """The loader's setting. Values that were left open, or that torch's own loader does not have, stay None."""
    setting = Setting(engine=engine(loader))
    for knob in knobs.KNOBS:
        if setting.workers or not knob.needs_workers:
            setting = knob.put(setting, knob.read(loader))
    return setting


def _batches(subject: Subject) -> int | None:
    size, loader = subject.arguments.get("batch_size"), subject.loader
    try:
        if loader is not None and size == loader.batch_size:
            return len(loader)
        samples = len(subject.dataset if loader is None or subject.is_stream else loader.sampler)
    except Exception:  # it has no length, or the user's ``__len__`` raises
        return None
    return samples if size is None else -(-samples // size)


def _asks_worker(subject: Subject) -> bool:
    """Whether the dataset's code asks which worker it is in. True also if that is unknown: library code is not examined.

    A ``worker_init_fn`` may give each worker its share as well.
    """
    if subject.arguments.get("worker_init_fn") is not None:
        return True
    dataset = subject.dataset
    if is_library(getattr(inspect.getmodule(type(dataset)), "__file__", None) or ""):
        return True
    parts = [
        each
        for each in vars(dataset).values()
        if hasattr(type(each), "__iter__") and hasattr(each, "__dict__")
    ]
    functions = [
        each
        for kind in {type(each) for each in (dataset, *parts)}
        for base in kind.__mro__
        for each in vars(base).values()
        if isinstance(each, types.FunctionType)
    ]
    seen: set[types.FunctionType] = set()
    while functions:
        function = functions.pop()
        if function in seen or is_library(function.__code__.co_filename):
            continue
        seen.add(function)
        names = _names(function.__code__)
        if any("worker_info" in name for name in names):
            return True
        found = (function.__globals__.get(name) for name in names)
        functions += [each for each in found if isinstance(each, types.FunctionType)]
    return False


def _names(code: types.CodeType) -> set[str]:
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return {*code.co_names, *(name for each in inner for name in _names(each))}


def _written(loader: Any) -> tuple[tuple[str, str], ...]:
    return tuple((knob.name, knob.written(loader)) for knob in knobs.KNOBS if hasattr(loader, knob.name))
