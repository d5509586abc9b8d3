"""Looks at what was given: the loader's arguments as they are, without making a sample."""

from __future__ import annotations

import inspect
from typing import Any

from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts
from stoker._tools.doctor.instruments.caches import caches
from stoker._tools.doctor.probes.process import start_method
from stoker._tools.probes.target import engine, has_own_collate, length_of, site, whole
from stoker._tools.sandbox.subject import Subject

_MOST_SOURCE_BYTES = 1 << 20
_MOST_ATTRIBUTES = 200


def probe(subject: Subject) -> TargetFacts:
    """Ask the objects. ``__len__`` of the dataset and its sampler are the user's code, and all of it that runs."""
    dataset = subject.dataset
    kind = type(dataset)
    file, line = _defined(kind)
    return TargetFacts(
        name=subject.name,
        kind="dataset" if subject.loader is None else "loader",
        dataset_class=f"{kind.__module__}.{kind.__qualname__}",
        dataset_file=file,
        dataset_line=line,
        stream=subject.is_stream,
        length=length_of(dataset),
        has_getitems=callable(getattr(dataset, "__getitems__", None)),
        loader=_assumed(subject)
        if subject.loader is None
        else loader_arguments(subject.loader, subject.arguments),
        assumed=subject.loader is None,
        others=tuple(loader_arguments(each, {}) for each in subject.others),
        file=subject.file,
        source=_source(subject.file),
        attributes=_attributes(dataset),
        caches=caches(dataset),
    )


def loader_arguments(loader: Any, given: dict[str, Any]) -> LoaderArguments:
    """A loader's arguments; ``given`` stands for what was asked to be assumed instead of its own."""
    from torch.utils.data import RandomSampler

    def own(name: str) -> Any:
        return given[name] if name in given else getattr(loader, name, None)

    sampler, batch_sampler = loader.sampler, own("batch_sampler")
    context = loader.multiprocessing_context
    made = site(loader)
    return LoaderArguments(
        engine=engine(loader),
        batch_size=whole(own("batch_size")),
        num_workers=whole(own("num_workers")) or 0,
        prefetch_factor=whole(loader.prefetch_factor),
        persistent_workers=bool(loader.persistent_workers),
        pin_memory=bool(loader.pin_memory),
        drop_last=bool(loader.drop_last),
        timeout_s=float(loader.timeout),
        in_order=bool(getattr(loader, "in_order", True)),
        start_method=start_method() if context is None else context.get_start_method(),
        sampler="" if _is_stream(loader) else type(sampler).__name__,
        batch_sampler="" if batch_sampler is None else type(batch_sampler).__name__,
        shuffle=isinstance(sampler, RandomSampler)
        or isinstance(getattr(batch_sampler, "sampler", None), RandomSampler),
        has_set_epoch=any(
            callable(getattr(each, "set_epoch", None))
            for each in (sampler, batch_sampler, getattr(batch_sampler, "sampler", None))
        ),
        replicas=_replicas(sampler, batch_sampler),
        own_collate=has_own_collate(loader),
        own_init=loader.worker_init_fn is not None,
        batches=length_of(loader)
        if given.get("batch_size") in (None, loader.batch_size)
        else _batches(loader, given["batch_size"]),
        samples=None if _is_stream(loader) else length_of(sampler),
        site=getattr(loader, "_site", None) or (str(made) if made else None),
        file=made.path if made else None,
        line=made.line if made else None,
        on_bad_sample=str(getattr(loader, "on_bad_sample", "raise")),
        device=None if getattr(loader, "device", None) is None else str(loader.device),
    )


def _assumed(subject: Subject) -> LoaderArguments:
    size, count = subject.arguments["batch_size"], length_of(subject.dataset)
    return LoaderArguments(
        engine="torch",
        batch_size=size,
        num_workers=subject.arguments["num_workers"],
        prefetch_factor=2,
        persistent_workers=False,
        pin_memory=False,
        drop_last=False,
        timeout_s=0.0,
        in_order=True,
        start_method=start_method(),
        sampler="" if subject.is_stream else "SequentialSampler",
        batch_sampler="" if subject.is_stream else "BatchSampler",
        shuffle=False,
        has_set_epoch=False,
        replicas=None,
        own_collate=False,
        own_init=False,
        batches=None if count is None or size is None else -(-count // size),
        samples=None if subject.is_stream else count,
        site=None,
    )


def _batches(loader: Any, size: int) -> int | None:
    """How many there would be with another size."""
    samples = None if _is_stream(loader) else length_of(loader.sampler)
    if samples is None:
        return None
    return samples // size if loader.drop_last else -(-samples // size)


def _is_stream(loader: Any) -> bool:
    from torch.utils.data import IterableDataset

    return isinstance(loader.dataset, IterableDataset)


def _replicas(*samplers: Any) -> int | None:
    for each in (*samplers, *(getattr(each, "sampler", None) for each in samplers)):
        found = getattr(each, "num_replicas", None)
        if isinstance(found, int):
            return found
    return None


def _defined(kind: type) -> tuple[str | None, int | None]:
    try:
        return inspect.getsourcefile(kind), inspect.getsourcelines(kind)[1]
    except (OSError, TypeError):
        return None, None


def _source(file: str | None) -> str:
    try:
        with open(file or "", encoding="utf-8", errors="replace") as text:
            return text.read(_MOST_SOURCE_BYTES)
    except OSError:
        return ""


def _attributes(dataset: Any) -> dict[str, str]:
    values = list(getattr(dataset, "__dict__", {}).items())[:_MOST_ATTRIBUTES]
    return {str(name): type(value).__qualname__ for name, value in values}
