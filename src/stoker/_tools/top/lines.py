"""Writes running loaders as lines of text, the same for a terminal and for a file: colour never carries meaning alone."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from stoker._record.finding import counted, cut, size
from stoker._record.run_page.summary import CacheSums
from stoker._tools.render.loader_names import title
from stoker._tools.top.live import LoaderLive, WorkerLive

CAUSES = {
    "io": "I/O",
    "compute": "compute",
    "gil": "the GIL",
    "starved": "CPU starved",
    "bandwidth": "memory bandwidth",
    "parent": "the parent",
    "start_up": "start-up",
    "head_of_line": "head of line",
    "unknown": "unknown",
}
_IDLE_S = 10.0
_SLOWEST = 3
_COMMAND = 60
_MEASURE = re.compile(r" (?=[.\d%])|(?<=\d) (?=[mµn]?s\b|[KMG]iB\b)")
"""The spaces between a name, its number and the unit: no line is broken there."""


class TopLine(NamedTuple):
    """One line; ``kind`` is head, live, alarm, detail or worker."""

    kind: str
    text: str


def board(loader: LoaderLive, most_workers: int | None = None) -> list[TopLine]:
    """All about one loader. ``most_workers`` bounds the lines about workers: those longest on their task are kept."""
    return [TopLine(line.kind, _printable(line.text)) for line in _board(loader, most_workers)]


def _board(loader: LoaderLive, most_workers: int | None) -> list[TopLine]:
    lines = [TopLine("head", _head(loader)), TopLine("live", f"  {live_line(loader)}")]
    lines += [TopLine("alarm", f"  {text}") for text in _alarms(loader)]
    lines += [TopLine("detail", f"  {text}") for text in _details(loader)]
    ranked = sorted(
        loader.workers, key=lambda worker: (not worker.awaited, -(worker.for_s or 0.0), worker.worker)
    )
    shown = ranked[:most_workers]
    lines += [TopLine("worker", f"  {worker_line(worker)}") for worker in shown]
    if rest := ranked[len(shown) :]:
        lines.append(TopLine("worker", f"  and {len(rest)} more: {_phases(rest)}"))
    return lines


def folded(line: TopLine, width: int) -> list[TopLine]:
    """A line that is wider than the screen, in several; those about workers are cut off there instead."""
    return [line] if line.kind in ("head", "worker") else broken(line, width)


def broken(line: TopLine, width: int) -> list[TopLine]:
    """A line that is wider than that, in several."""
    if len(line.text) <= width:
        return [line]
    rows = textwrap.wrap(_MEASURE.sub("\N{NO-BREAK SPACE}", line.text), width, subsequent_indent="    ")
    return [TopLine(line.kind, text.replace("\N{NO-BREAK SPACE}", " ")) for text in rows]


def live_line(loader: LoaderLive) -> str:
    """The one line of TUNING.md: what is not known is left out."""
    parts = []
    if loader.stall is not None:
        parts.append(f"stall {percent(loader.stall)}")
    elif (loader.idle_s or 0.0) > _IDLE_S:
        parts.append(f"no batch asked for since {seconds(loader.idle_s or 0.0)}")
    if loader.ready is not None:
        parts.append(f"ready {share(loader.ready, 2)}")
    if loader.num_workers:
        busy = f" {100 * loader.busy:.0f} % busy" if loader.busy is not None else ""
        parts.append(f"{counted(loader.num_workers, 'worker')}{busy}")
    if loader.window is not None and loader.depth is not None:
        parts.append(f"window {loader.depth}/{loader.window}")
    if loader.cpu is not None and loader.runq is not None and loader.off is not None:
        parts.append(f"cpu {share(loader.cpu)} runq {share(loader.runq)} off {share(loader.off)}")
    if loader.rate is not None:
        parts.append(f"{rate(loader.rate)}/s")
    if loader.cause is not None:
        parts.append(f"cause: {CAUSES.get(loader.cause, loader.cause)}")
    elif loader.stall is not None:
        parts.append("data keeps up")
    return " | ".join(parts) or "no batch yet"


def cache_line(cache: CacheSums) -> str:
    """ "cache: 98 % hits of 12k samples, 1.4 GiB stored, 85 s of workers' time saved"."""
    asked = cache["hits"] + cache["misses"]
    share_of_hits = f"{100 * cache['hits'] / asked:.0f} % hits of " if asked else ""
    text = f"cache: {share_of_hits}{rate(asked)} samples, {size(cache['stored_bytes'])} stored"
    if cache["passed"]:
        text += f", {rate(cache['passed'])} not stored"
    return f"{text}, {seconds(cache['saved_ns'] / 1e9)} of workers' time saved"


def worker_line(worker: WorkerLive) -> str:
    """What one worker is on, and for how long."""
    text = f"worker {worker.worker:<3} {worker.pid:<8} {worker.phase:<8}"
    if worker.for_s is None:
        return text.rstrip()
    index = f"index {worker.index}" if worker.index is not None else ""
    mark = "awaited" if worker.awaited else "of an old epoch" if worker.stale else ""
    text += f"{index:<14} {seconds(worker.for_s):>8}  {mark:<8} batch {worker.batch}"
    if worker.row is not None:
        text += f" row {worker.row}"
    if worker.cpu is not None and worker.runq is not None and worker.off is not None:
        text += f"  cpu {share(worker.cpu)} runq {share(worker.runq)} off {share(worker.off)}"
    return text


def _head(loader: LoaderLive) -> str:
    command = loader.command or "process"
    words = [f"{cut(command, _COMMAND)} ({loader.pid})"]
    if loader.world_size > 1:
        words.append(f"rank {loader.rank} of {loader.world_size}")
    if loader.name is not None:
        words.append(f"{title(str(loader.name), str(loader.dataset), loader.site)}, {loader.executor}")
    if loader.engine == "torch":
        words.append("torch's loader")
    if not loader.recorded:
        words.append("a loader that keeps no record")
    if loader.epochs is not None:
        words.append(f"epoch {loader.epochs}")
    if loader.steps is not None:
        words.append(f"step {loader.steps}")
    return "  ".join(words)


def _alarms(loader: LoaderLive) -> Iterator[str]:
    if loader.waiting_s is not None and loader.waiting_s >= 1:
        awaited = next((worker for worker in loader.workers if worker.awaited), None)
        on = ""
        if awaited is not None:
            index = f"index {awaited.index} of " if awaited.index is not None else ""
            on = (
                f": worker {awaited.worker} is on {index}batch {awaited.batch} ({awaited.phase}), "
                f"which it began {seconds(awaited.for_s or 0.0)} ago"
            )
        elif loader.workers:
            on = ": no worker is at work"
        yield f"waiting for {seconds(loader.waiting_s)}{on}"
    counts = (("restart", loader.restarts), ("stall", loader.stalls), ("bad sample", loader.bad_samples))
    if told := [counted(number, word) for word, number in counts if number]:
        yield ", ".join(told)
    if loader.event is not None and loader.event_ago_s is not None:
        reason = loader.event["reason"].partition("\n")[0]
        yield f"{seconds(loader.event_ago_s)} ago, {loader.event['kind'].replace('_', ' ')}: {reason}"


def _details(loader: LoaderLive) -> Iterator[str]:
    if loader.cause is not None and loader.causes:
        yield "blame: " + ", ".join(
            f"{CAUSES.get(cause, cause)} {100 * part:.0f} %"
            for cause, part in loader.causes.items()
            if part >= 0.01
        )
        first = loader.blame[0] if loader.blame else None
        if first is not None and first["ns"] / 1e9 > (loader.waiting_s or 0.0):
            who = "the parent" if first["worker"] < 0 else f"worker {first['worker']}"
            yield f"most of the run's wait: {first['stage'].replace('_', '-')} in {who}, {seconds(first['ns'] / 1e9)}"
    if loader.cache is not None:
        yield cache_line(loader.cache)
    if slow := [each for each in loader.slowest[:_SLOWEST] if each["index"] is not None]:
        yield "slowest: " + ", ".join(f"index {each['index']} {seconds(each['ns'] / 1e9)}" for each in slow)
    if loader.workers:
        yield f"workers: {_phases(loader.workers)}"


def _phases(workers: list[WorkerLive]) -> str:
    found = Counter(worker.phase for worker in workers)
    return ", ".join(f"{found[phase]} {phase}" for phase in ("fetch", "collate", "idle") if found[phase])


def _printable(text: str) -> str:
    """Names and reasons come from elsewhere: they may not move the cursor."""
    return "".join(char if char.isprintable() else "?" for char in text)


def percent(part: float) -> str:
    """ "3.1 %"."""
    return f"{100 * part:.1f} %"


def share(part: float, digits: int = 1) -> str:
    """ ".6", or ".94" with two digits; "1" and "0" stay whole."""
    text = f"{part:.{digits}f}"
    return text.removeprefix("0") if text.startswith("0.") else text


def rate(number: float) -> str:
    """ "1.2k", "830", "4.2", "0.31"."""
    if number >= 9_950:
        return f"{number / 1000:.0f}k"
    if number >= 995:
        return f"{number / 1000:.1f}k"
    if number >= 9.95:
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 0.95 or not number else f"{number:.2g}"


def seconds(number: float) -> str:
    """ "3 ms", "0.8 s", "12 s", "3.5 min", "2.1 h"."""
    if number < 0.0995:
        return f"{1000 * number:.0f} ms" if number >= 0.00095 else f"{1e6 * number:.0f} µs"
    if number < 9.95:
        return f"{number:.1f} s"
    if number < 99.5:
        return f"{number:.0f} s"
    if number < 5970:
        return f"{number / 60:.1f} min"
    return f"{number / 3600:.1f} h"
