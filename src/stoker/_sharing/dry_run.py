"""Measures everything that ``share`` would pack, and keeps nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import torch

from stoker._pickling.segment import Place, SegmentWriter
from stoker._sharing.containers import tables, views
from stoker._sharing.decisions import ShareAction
from stoker._sharing.report import ShareEntry, ShareReport
from stoker._sharing.storage.packing import pack
from stoker._sharing.storage.pickled import NotPacked
from stoker._sharing.survey import Found, Survey
from stoker.errors import CannotShare

_SAMPLED = 4_000_000
_SAMPLE = 200_000


class DryRunWriter(SegmentWriter):
    """Takes what a segment would, and only counts it."""

    def __init__(self) -> None:
        self._fd = -1
        self._end = 0

    def put(self, chunks: Iterable[Any]) -> Place:
        """Count buffers as if they were written."""
        nbytes = sum(memoryview(chunk).nbytes for chunk in chunks)
        start = -(-self._end // 64) * 64
        self._end = start + nbytes
        return Place(start, nbytes)


def dry_run(survey: Survey, refusal_text: Any) -> ShareReport:
    """Say what would happen. ``refusal_text`` words what cannot be packed."""
    together = {id(node): group for group in views.overlapping(_arrays(survey)) for node in group}
    counted: set[int] = set()
    entries = []
    for found in survey.found:
        group = together.get(id(found.node))
        if group is not None:
            first = id(group) not in counted
            counted.add(id(group))
            low_high = [views.span(node.obj) for node in group]
            region = max(each.high for each in low_high) - min(each.low for each in low_high)
            entries.append(_entry(found, "packed", "a view of one buffer", region if first else 0))
        else:
            entries.append(_tried(found, refusal_text))
    return ShareReport(tuple(entries))


def _arrays(survey: Survey) -> list[Any]:
    return [found.node for found in survey.to_pack() if isinstance(found.node.obj, np.ndarray | torch.Tensor)]


def _tried(found: Found, refusal_text: Any) -> ShareEntry:
    obj = found.node.obj
    if found.verdict.fate is not ShareAction.PACK:
        return _entry(found, "kept", "", 0)
    tally, note = DryRunWriter(), found.verdict.reason
    try:
        if isinstance(obj, np.ndarray | torch.Tensor):
            return _entry(found, "packed", str(obj.dtype).removeprefix("torch."), found.verdict.nbytes)
        if tables.is_table(obj):
            packed, note = tables.pack_table(obj, tally)
        else:
            packed = pack(_sampled(obj), tally)
    except NotPacked as error:
        return _entry(found, "kept", "", 0, str(error))
    except CannotShare as error:
        return _entry(found, "refused", "", 0, refusal_text(found, error))
    about = not tables.is_table(obj) and len(obj) > _SAMPLED
    nbytes = packed.nbytes * len(obj) // _SAMPLE if about else packed.nbytes
    return _entry(found, "packed", packed.layout, nbytes, note, about)


def _sampled(obj: Any) -> Any:
    """A part of a very large container, from everywhere in it."""
    if len(obj) <= _SAMPLED:
        return obj
    step = len(obj) // _SAMPLE
    if isinstance(obj, list | tuple):
        return obj[::step][:_SAMPLE]
    some = islice(obj.items() if isinstance(obj, dict) else obj, 0, step * _SAMPLE, step)
    kind = dict if isinstance(obj, OrderedDict) else type(obj)
    return kind(some)


def _entry(
    found: Found, action: Any, layout: str, nbytes: int, reason: str | None = None, about: bool = False
) -> ShareEntry:
    obj = found.node.obj
    return ShareEntry(
        path=found.path,
        type=type(obj).__name__,
        items=_items(obj),
        layout=layout,
        bytes_before=found.verdict.nbytes,
        bytes_after=nbytes,
        action=action,
        reason=found.verdict.reason if reason is None else reason,
        objects=issubclass(type(obj), list | tuple | dict | set | frozenset),
        about=about,
        also=tuple(found.also),
    )


def _items(obj: Any) -> int:
    try:
        return len(obj)
    except Exception:  # a 0-dimensional array, or something that has no length
        return 0
