"""Reports what ``share`` would do and what that saves: ``stoker.share(obj, report=True)``."""

from __future__ import annotations

import itertools
import textwrap
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from stoker._record.finding import cut

_WIDTH = 100
_ALIKE = 4
_PATH = 30
_TYPE = 18
_LAYOUT = 24


@dataclass(frozen=True, slots=True)
class ShareEntry:
    """One thing that was found. ``reason``: why it is kept or cannot be packed; of what is packed, what its readers notice."""

    path: str
    type: str
    items: int
    layout: str
    bytes_before: int
    bytes_after: int
    action: Literal["packed", "kept", "refused"]
    reason: str = ""
    objects: bool = False
    """Made of Python objects: reading it under fork copies it into every worker."""
    about: bool = False
    """``bytes_after`` comes from a sample."""
    also: tuple[str, ...] = ()
    """Other places that hold the same object."""


@dataclass(frozen=True, slots=True)
class ShareReport:
    """What ``stoker.share`` would pack, keep or refuse. Nothing was changed. ``str()`` of it is a table."""

    entries: tuple[ShareEntry, ...]

    @property
    def packed(self) -> tuple[ShareEntry, ...]:
        """What would be packed."""
        return tuple(entry for entry in self.entries if entry.action == "packed")

    @property
    def shared_bytes(self) -> int:
        """Size of the one shared copy."""
        return sum(entry.bytes_after for entry in self.packed)

    @property
    def saved_bytes_per_worker(self) -> int:
        """Memory that a forked worker no longer copies by reading. Arrays are not in it: their pages stay shared anyway."""
        return sum(entry.bytes_before for entry in self.packed if entry.objects)

    @property
    def saved_bytes_in_shipment(self) -> int:
        """Memory of arrays, tensors and tables that is not copied once more when workers start by spawn or forkserver."""
        return sum(entry.bytes_after for entry in self.packed if not entry.objects)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "entries": [asdict(entry) for entry in self.entries],
            "shared_bytes": self.shared_bytes,
            "saved_bytes_per_worker": self.saved_bytes_per_worker,
            "saved_bytes_in_shipment": self.saved_bytes_in_shipment,
        }

    def __str__(self) -> str:
        if not self.entries:
            return "share: nothing large enough to share was found"
        lines = [_row("what", "type", "layout", "now", "shared")]
        for entry in _summed(self.entries):
            lines.append(_line(entry))
            for remark in _remarks(entry):
                lines.extend(textwrap.wrap(remark, _WIDTH, initial_indent="    ", subsequent_indent="    "))
        return "\n".join([*lines, "", *_summary(self)])


def _summed(entries: tuple[ShareEntry, ...]) -> list[ShareEntry]:
    """One line for many items of one container that fare alike."""
    shown: list[ShareEntry] = []
    for (home, *_), group in itertools.groupby(entries, key=_kinship):
        alike = list(group)
        if not home or len(alike) < _ALIKE:
            shown.extend(alike)
            continue
        shown.append(
            replace(
                alike[0],
                path=f"{home}[…] × {len(alike)}",
                items=sum(entry.items for entry in alike),
                layout=alike[0].layout if len({entry.layout for entry in alike}) == 1 else "various",
                bytes_before=sum(entry.bytes_before for entry in alike),
                bytes_after=sum(entry.bytes_after for entry in alike),
                also=(),
            )
        )
    return shown


def _kinship(entry: ShareEntry) -> tuple[str, ...]:
    home = entry.path[: entry.path.rfind("[")] if entry.path.endswith("]") else ""
    return home, entry.type, entry.action, entry.reason


def _line(entry: ShareEntry) -> str:
    kind = f"{entry.type}[{entry.items}]" if entry.items else entry.type
    after = human(entry.bytes_after)
    if entry.action != "packed":
        after = entry.action
    elif entry.about:
        after = f"~{after}"
    return _row(entry.path, kind, entry.layout, human(entry.bytes_before), after)


def _row(path: str, kind: str, layout: str, before: str, after: str) -> str:
    texts = (_cut_left(path, _PATH), cut(kind, _TYPE), cut(layout, _LAYOUT))
    return (
        f"{texts[0]:<{_PATH}}  {texts[1]:<{_TYPE}}  {texts[2]:<{_LAYOUT}}  {before:>9}  {after:>9}".rstrip()
    )


def _remarks(entry: ShareEntry) -> list[str]:
    also = [f"also {', '.join(entry.also[:3])}"] if entry.also else []
    return [*also, entry.reason] if entry.reason else also


def _summary(report: ShareReport) -> list[str]:
    if not report.packed:
        return ["Nothing would be packed."]
    about = "about " if any(entry.about for entry in report.packed) else ""
    lines = [f"One shared copy: {about}{human(report.shared_bytes)}."]
    if report.saved_bytes_per_worker:
        lines.append(
            f"fork: reading Python objects writes their reference counts, so each worker copies up to "
            f"{human(report.saved_bytes_per_worker)}"
        )
        lines.append("over an epoch; with share it does not.")
    if report.saved_bytes_in_shipment:
        lines.append(
            f"spawn, forkserver: {human(report.saved_bytes_in_shipment)} of arrays are not copied once more when workers start."
        )
        lines.append("Under fork sharing arrays saves nothing: their pages stay shared as they are.")
    return lines


def human(nbytes: int) -> str:
    """A size for people."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def _cut_left(text: str, width: int) -> str:
    """Cut a long path on the left: its end tells more."""
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"
