"""Shows what sample caches did for each loader that used one."""

from __future__ import annotations

from stoker._record.finding import size
from stoker._record.schema import CacheUse, LoaderRecord
from stoker._tools.render.section import Part, Prose, Section, Table, side_by_side
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.page.terms import loaders, percent, sentence, title, took
from stoker._tools.report.verdict.reasons import cache_use

_MOST = 8
_FULL = 0.02
"""If a larger share of all samples was not stored, the cache is too small, or samples are not storable."""


def section(material: Material) -> Section | None:
    """Return the section: a table of the loaders with a cache, and a sentence about the one that costs most."""
    parts = side_by_side((run.label, _of(run)) for run in material.runs)
    return Section("cache", "Sample cache", parts) if parts else None


def _of(run: ReportedRun) -> list[Part]:
    found = [(loader, loader.cache) for loader, _ in loaders(run) if loader.cache is not None][:_MOST]
    if not found:
        return []
    columns = ("loader", "samples", "hits", "read from it", "stored", "not stored", "workers' time saved")
    rows = tuple(_row(loader, use) for loader, use in found)
    parts: list[Part] = [
        Prose(sentence(cache_use(found[0][1]))),
        Table("What the cache did", columns, rows, numeric=frozenset(range(1, len(columns)))),
    ]
    first = found[0][1]
    if first.passed > _FULL * (first.hits + first.misses):
        parts.append(
            Prose(
                "Samples that are not stored are made again in every epoch. A larger `budget` has room for more; "
                "`dataset.cache_info()` says which samples cannot be stored."
            )
        )
    return parts


def _row(loader: LoaderRecord, use: CacheUse) -> tuple[str, ...]:
    return (
        title(loader),
        f"{use.hits + use.misses:,}",
        percent(use.hit_share),
        size(use.hit_bytes),
        size(use.stored_bytes),
        f"{use.passed:,}",
        took(use.saved_ns),
    )
