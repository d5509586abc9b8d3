"""``stoker.share``: replaces what is large in a dataset by containers over one shared, read-only segment.

    survey ──► pack everything ──► seal ──► open ──► put into place
    reads only      a file of ours only                 undone as a whole when one step fails

Until the last step nothing of the object has changed, so whatever fails or interrupts before leaves it as it was.
"""

from __future__ import annotations

import errno
import logging
from typing import Any, Literal, TypeVar, overload

import numpy as np
import torch

from stoker._pickling import find_unpicklable
from stoker._pickling.segment import SegmentWriter
from stoker._pickling.spec_pickle import probing
from stoker._sharing.containers import tables, views
from stoker._sharing.decisions import ShareAction
from stoker._sharing.dry_run import dry_run
from stoker._sharing.report import ShareReport, human
from stoker._sharing.storage.packing import Packed, pack
from stoker._sharing.storage.pickled import NotPacked
from stoker._sharing.survey import Found, Spot, Survey, SurveyNode
from stoker.errors import CannotShare, StokerError, UnsendableError

T = TypeVar("T")
_log = logging.getLogger("stoker")
_LONG = 40
"""Longer keys are cut in messages."""


@overload
def share(obj: T, *, report: Literal[False] = False, min_bytes: int = 65536) -> T: ...
@overload
def share(obj: object, *, report: Literal[True], min_bytes: int = 65536) -> ShareReport: ...
def share(obj: Any, *, report: bool = False, min_bytes: int = 65536) -> Any:
    """Put the large parts of ``obj`` into one shared copy that every worker reads.

    Call it before the loader starts workers, while nothing else changes ``obj``. Shared containers are read like the originals
    and cannot be changed; their ``copy()`` is private.

    Args:
        obj: A list, tuple, dict, set, array, tensor or table: its shared counterpart is returned, and ``obj`` is not changed.
            Any other object, such as a dataset: its large attributes are replaced in place, also in nested datasets and
            objects, and ``obj`` is returned.
        report: Change nothing, and return a ``ShareReport``: what would be packed, what stays and why, and what that saves.
        min_bytes: Smaller attributes are left alone.

    Raises:
        UnsendableError: Something cannot be packed; the message has its path. ``obj`` is then unchanged.
    """
    survey = Survey(obj, min_bytes)
    if report:
        return dry_run(survey, _refusal_text)
    _log_what_stays(survey)
    packed = _packed(survey)
    if packed:
        _put_into_place(survey.spots)
    return survey.root.value()


def _packed(survey: Survey) -> bool:
    """Pack, seal and open; whether there was anything."""
    every = survey.to_pack()
    if not every:
        return False
    writer: SegmentWriter | None = None
    try:
        writer = SegmentWriter()
        packed = _pack_all(every, writer, survey.root)
        if not packed:
            return False
        segment = writer.seal()
    except OSError as error:
        raise _explained(error, writer) from error
    finally:
        if writer is not None:
            writer.close()
    for found, each in packed:
        found.node.replacement = each.open(segment)
    return True


def _explained(error: OSError, writer: SegmentWriter | None) -> OSError:
    """The same error, with what it means here."""
    if error.errno == errno.EMFILE:
        why = (
            "every call of share keeps a file open while its data is in use: share what belongs together in one call, "
            "or raise ulimit -n"
        )
    else:
        why = f"the shared copy could not be written, {human(writer.nbytes if writer else 0)} of it were"
    return OSError(error.errno, f"{error.strerror}: {why}. Nothing was changed")


def _pack_all(every: list[Found], writer: SegmentWriter, root: SurveyNode) -> list[tuple[Found, Packed]]:
    packed: list[tuple[Found, Packed]] = []
    by_node = {id(found.node): found for found in every}
    arrays = [found.node for found in every if isinstance(found.node.obj, np.ndarray | torch.Tensor)]
    for group in views.overlapping(arrays):
        together = views.pack_together(group, writer)
        packed.extend((by_node.pop(id(node)), each) for node, each in zip(group, together, strict=True))
    for found in by_node.values():
        try:
            packed.append((found, _pack_one(found, writer)))
        except NotPacked as error:
            _log.log(_level(found, root), "share: %s is left as it is: %s", found.path, error)
    return packed


def _pack_one(found: Found, writer: SegmentWriter) -> Packed:
    obj = found.node.obj
    try:
        return tables.pack_table(obj, writer)[0] if tables.is_table(obj) else pack(obj, writer)
    except CannotShare as error:
        raise CannotShare(_refusal_text(found, error), error.steps) from error
    except (NotPacked, MemoryError, OSError):
        raise
    except StokerError:
        raise
    except Exception as error:
        raise UnsendableError(f"{found.path} ({type(obj).__name__}) cannot be shared: {error}") from error


def _refusal_text(found: Found, error: CannotShare) -> str:
    path, part = found.path, found.node.obj
    for step in error.steps:
        try:
            part = part[step]
        except Exception:  # an item of a set: nothing leads to it
            break
        path += f"[{_short(step)}]"
    inner = find_unpicklable.search(part, path, probing)
    text, why, remedy = (f"{path} ({type(part).__name__})", error, "") if inner is None else inner
    return f"{text} cannot be shared: {why}. Nothing was changed. {remedy or f'Take it out of {found.path}.'}"


def _short(step: object) -> str:
    text = repr(step)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def _put_into_place(spots: list[Spot]) -> None:
    """Replace; all or nothing."""
    done: list[tuple[Spot, Any]] = []
    path = ""
    try:
        for spot in spots:
            path = spot.path
            if not spot.node.changes() or spot.get() is not spot.node.obj:
                continue
            done.append((spot, spot.node.obj))
            spot.put(spot.node.value())
    except BaseException as error:
        _undo(done)
        if isinstance(error, Exception):
            raise UnsendableError(f"{path} cannot be replaced: {error}. Everything is as it was") from error
        raise


def _undo(done: list[tuple[Spot, Any]]) -> None:
    interrupted: KeyboardInterrupt | None = None
    while done:
        spot, original = done[-1]
        try:
            if spot.get() is not original:
                spot.put(original)
            done.pop()
        except KeyboardInterrupt as error:  # half undone is worse than a moment later
            interrupted = error
        except Exception:  # the one that failed to be put: it may not be readable either
            done.pop()
    if interrupted is not None:
        raise interrupted


def _log_what_stays(survey: Survey) -> None:
    for found in survey.found:
        if found.verdict.fate is ShareAction.KEEP and found.verdict.nbytes:
            level, size = _level(found, survey.root), human(found.verdict.nbytes)
            _log.log(level, "share: %s (%s) is left as it is: %s", found.path, size, found.verdict.reason)


def _level(found: Found, root: SurveyNode) -> int:
    """What the user named and does not get is worth a warning."""
    return logging.WARNING if found.node is root else logging.INFO
