"""The causes of waits that a verdict prints in brackets: what each means and what to do. docs/starving.md shows this table."""

from __future__ import annotations

import re
from typing import NamedTuple

from stoker._record.finding import capitalised


class CausePage(NamedTuple):
    """A row of the table. The texts are Markdown; ``detail`` says whose doing it is, where a cause has several rows."""

    cause: str
    means: str
    remedy: str
    detail: str = ""
    checks: tuple[str, ...] = ()
    """Checks of the doctor whose pages say more."""

    def row(self) -> str:
        """As docs/starving.md has it."""
        name = f"`{self.cause}`" + (f", {self.detail}" if self.detail else "")
        return f"| {name} | {self.means} | {self.remedy} |"


PAGES = (
    CausePage(
        "io",
        "workers are off the CPU: disk, network, a lock, a sleep",
        'more workers than cores; `threads_per_worker=16` or `executor="thread"` if the dataset is thread-safe; larger '
        "sequential reads, a local copy, one open file per worker. If only the first reading is slow, it is storage: "
        "[choosing workers](choosing-workers.md)",
        checks=("STK707",),
    ),
    CausePage(
        "compute",
        "decoding and augmentation take more CPU than the workers have",
        "workers up to the CPUs, then cheaper samples: decode smaller, resize before converting, cache what repeats, use "
        "native or batched transforms. Or move decoding and augmentation to the device (torchvision's v2 transforms, "
        "Kornia, DALI), which stoker does not do",
        checks=("STK701", "STK705"),
    ),
    CausePage("gil", "threads wait for Python's lock", '`executor="process"`'),
    CausePage(
        "starved",
        "the cgroup's CPU quota is used up",
        "raise it (`docker --cpus`, `limits.cpu`, `--cpus-per-task`). More workers make it worse",
        "quota",
        ("STK204",),
    ),
    CausePage(
        "starved",
        "this job has more running threads than CPUs",
        "one thread per worker (as stoker's workers have), then fewer workers. Under DDP, workers × ranks count",
        "own",
        ("STK307", "STK702"),
    ),
    CausePage("starved", "other programs use the CPUs", "reserve CPUs for the job", "neighbours"),
    CausePage(
        "bandwidth",
        "workers wait for memory",
        "move fewer bytes: `uint8` until the device, crop before converting",
        checks=("STK710",),
    ),
    CausePage(
        "parent",
        "the training process is slow: sampler, opening batches, pinning, waking up",
        "a cheaper sampler, tensors instead of thousands of Python objects, fewer and larger tensors; the screen says "
        "which. With torch's loader, try stoker's",
        checks=("STK605", "STK408"),
    ),
    CausePage(
        "start-up",
        "workers take long to start, every epoch",
        "`persistent_workers=True`, `prefetch_epochs=True`; open files lazily; `stoker.share` for large data",
        checks=("STK706", "STK106"),
    ),
    CausePage(
        "head-of-line",
        "finished batches wait for an earlier, slow one",
        "look at the samples it names. Use stoker's loader (idle workers take the next batch, batches are split), a deeper "
        "window, or `in_order=False` if order does not matter",
        checks=("STK604",),
    ),
    CausePage(
        "unknown",
        "the workers' CPU time was not measured: a loader that others derived from torch's "
        "([what is not measured](profile-torch.md#what-is-not))",
        "try `stoker run`, or stoker's loader",
    ),
    CausePage(
        "recording",
        "making the record, a few times a second. It is in the table but not in the stall, and matters only in runs of "
        "about a second",
        "a longer run",
    ),
)
CAUSES = tuple(dict.fromkeys(each.cause for each in PAGES))
"""As a verdict writes them."""
DETAILS = tuple(each.detail for each in PAGES if each.detail)
"""Whose doing it is: the second word in a verdict's brackets."""
_LINK = re.compile(r"\[([^\]]+)\]\(([\w.-]+)(?:#[\w-]+)?\)")


def title(word: str) -> str:
    """What a cause or a detail means, in a line; of several rows, all."""
    return _unlinked("; or ".join(each.means for each in _rows(word)))


def remedy(word: str) -> str:
    """What to do about it; of several rows, each with whose doing it is."""
    rows = _rows(word)
    told = [f"{each.detail}: {each.remedy}" if len(rows) > 1 else each.remedy for each in rows]
    return _unlinked(". ".join(map(capitalised, told)) + ".")


def checks(word: str) -> tuple[str, ...]:
    """Checks of the doctor whose pages say more."""
    return tuple(code for each in _rows(word) for code in each.checks)


def _rows(word: str) -> list[CausePage]:
    return [each for each in PAGES if word in (each.cause, each.detail)]


def _unlinked(text: str) -> str:
    """With the page's path in place of a link to it."""
    return _LINK.sub(r"docs/\2", text)
