"""Decides which trial comes next, and what the trials show. Pure: ``bisect`` runs them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from stoker._record.finding import counted
from stoker._tools.doctor.facts.trial import BisectionBaseline, BisectionOutcome

_SUSPICIONS = {
    "fork": "what has to be sent to a worker",
    "spawn": "what a fork copies: threads, locks, open files, an accelerator",
    "forkserver": "what a fork copies: threads, locks, open files, an accelerator",
}
"""By the start method that it works under: what is suspect then."""


@dataclass(frozen=True, slots=True)
class BisectionSetting:
    """What is tried: the loader as it is but for what is said here."""

    workers: int
    method: str | None = None
    """None: its own."""
    without: tuple[str, ...] = ()
    one_thread: bool = False
    """Whether native libraries have one thread each in the training process."""
    engine: str | None = None
    """None: its own."""

    @property
    def change(self) -> str:
        """Return the change in words, without the number of workers; "" for the loader as it is."""
        parts = [f"without {each}" for each in self.without]
        if self.one_thread:
            parts.append("one thread per library")
        if self.engine is not None:
            parts.append(f"{self.engine}'s loader")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class BisectionTrial:
    """A setting, and what came of it."""

    setting: BisectionSetting
    outcome: BisectionOutcome


@dataclass(frozen=True, slots=True)
class Conclusion:
    """``suspects`` are the parts that it works without; ``failure`` is the trial to explain, None when nothing failed."""

    text: str
    suspects: tuple[str, ...] = ()
    failure: BisectionTrial | None = None
    works: bool = False
    """Whether the loader works as it is: then ``failure`` is about another start method."""


Steps = Generator[BisectionSetting, BisectionOutcome, None]


def procedure(own: BisectionBaseline, *, threads: bool = False) -> Steps:
    """No workers, one, more; then one suspect at a time; then the other engine. Sent the outcome of every setting it yields.

    ``threads``: whether it is worth trying with one thread per native library.
    """
    if not (yield BisectionSetting(0)).ok:
        for part in own.parts:
            if part not in ("worker_init_fn", "persistent_workers"):
                yield BisectionSetting(0, without=(part,))
        return
    for workers in sorted({1, 2, own.workers} - {0}):
        if not (yield BisectionSetting(workers)).ok:
            yield from _suspects(own, workers, threads)
            return
    broken = []
    for method in own.methods:
        if method != own.method and not (yield BisectionSetting(1, method)).ok:
            broken.append(method)  # noqa: PERF401
    for part in own.parts if broken else ():
        yield BisectionSetting(1, broken[0], (part,))
    yield BisectionSetting(max(1, own.workers), engine=own.other)


def _suspects(own: BisectionBaseline, workers: int, threads: bool) -> Steps:
    helped = False
    for part in own.parts:
        helped |= (yield BisectionSetting(workers, without=(part,))).ok
    for method in own.methods:
        if method != own.method:
            helped |= (yield BisectionSetting(workers, method)).ok
    if threads:
        helped |= (yield BisectionSetting(workers, one_thread=True)).ok
    if not helped and len(own.parts) > 1:
        yield BisectionSetting(workers, without=own.parts)
    yield BisectionSetting(workers, engine=own.other)


def conclude(own: BisectionBaseline, trials: Sequence[BisectionTrial]) -> Conclusion:
    """What they come down to, also when they are not all there."""
    plain = [each for each in trials if each.setting == BisectionSetting(each.setting.workers)]
    failed = next((each for each in plain if not each.outcome.ok), None)
    if failed is None:
        return _all_well(trials, plain)
    if failed.setting.workers == 0:
        said = "fails without workers, too: they are not the cause, and num_workers=0 is where to debug it"
        return _with_suspects(said, failed, trials)
    said = f"fails from {counted(failed.setting.workers, 'worker')} on under {own.method}"
    works = [each.setting.workers for each in plain if each.outcome.ok]
    said += f", works with {'none' if works == [0] else listed(list(map(str, works)))}"
    return _with_suspects(said, failed, trials)


def _with_suspects(said: str, failed: BisectionTrial, trials: Sequence[BisectionTrial]) -> Conclusion:
    others = [
        each for each in trials if each.setting.workers == failed.setting.workers and each is not failed
    ]
    same = [each for each in others if each.setting.engine is None]
    alone = [each.setting.without[0] for each in same if len(each.setting.without) == 1 and each.outcome.ok]
    methods = [each.setting.method for each in same if each.setting.method and each.outcome.ok]
    sentences = [said]
    if alone:
        which = " or ".join(alone)
        sentences.append(f"works when {which} is left out: the suspect is {which}")
    if methods:
        first = methods[0] or ""
        sentences.append(
            f"works under {listed(list(map(str, methods)))}: the suspect is {_SUSPICIONS[first]}"
        )
    if any(each.setting.one_thread and each.outcome.ok for each in same):
        sentences.append("works with one thread per native library: the suspect is a library's threads")
    together = next((each for each in same if len(each.setting.without) > 1), None)
    if together is not None and together.outcome.ok:
        sentences.append(f"works only when all of {', '.join(together.setting.without)} are left out")
    elif same and not any(each.outcome.ok for each in same):
        sentences.append("no change helps: the suspect is the dataset itself")
    sentences += _compared(others)
    return Conclusion("; ".join(sentences) + ".", tuple(alone), failed)


def _all_well(trials: Sequence[BisectionTrial], plain: list[BisectionTrial]) -> Conclusion:
    if not plain:
        return Conclusion("Nothing was tried.")
    numbers = [str(each.setting.workers) for each in plain]
    batches = max(each.outcome.batches for each in plain)
    workers = "worker" if numbers == ["1"] else "workers"
    sentences = [
        f"works with {listed(numbers)} {workers}, over at most {counted(batches, 'batch', 'batches')} each"
    ]
    elsewhere = [each for each in trials if each.setting.method and not each.setting.without]
    broken = [each for each in elsewhere if not each.outcome.ok]
    parts = [each.setting.without[0] for each in trials if each.setting.without and each.outcome.ok]
    if broken:
        found = f"fails under {listed([str(each.setting.method) for each in broken])}"
        if parts:
            which = " or ".join(parts)
            found += f", works there when {which} is left out: the suspect is {which}"
        sentences.append(found)
    else:
        sentences.append(
            "if it fails later, the cause is a later sample or what grows: stoker doctor looks for both"
        )
    text = "; ".join([*sentences, *_compared(trials)]) + "."
    return Conclusion(text, tuple(parts), broken[0] if broken else None, works=True)


def listed(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def _compared(trials: Sequence[BisectionTrial]) -> list[str]:
    """What the other loader made of it."""
    for each in trials:
        if each.setting.engine is not None:
            works = "works" if each.outcome.ok else "fails on it, too"
            return [f"{each.setting.engine}'s loader {works}"]
    return []
