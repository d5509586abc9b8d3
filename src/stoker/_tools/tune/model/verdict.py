"""The result of a search in sentences: the verdict, the reasons with their numbers, and the next limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stoker._record.finding import capitalised, counted, duration
from stoker._runtime.simulation.point import Interval, Point
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.tune import knobs
from stoker._tools.tune.model.standings import CPU_TIE, NEIGHBOUR, TIE

CEILING = 0.03
"""Share of a step's time. A search is worthwhile only if more than this could be saved at best."""
_MOST_WHY = 5
_MOST_WARNINGS = 5
_FEW_BATCHES = 8


@dataclass(frozen=True, slots=True)
class VerdictCase:
    """The facts behind the sentences. None: unknown."""

    baseline: Setting
    chosen: Setting
    loader: bool = True
    """Whether the baseline is a loader's. Otherwise a dataset was given, and the baseline has no workers."""
    points: tuple[Point, ...] = ()
    rivals: tuple[Setting, ...] = ()
    stopped: str = ""
    host: Host | None = None
    work: Work | None = None
    demand: Demand = field(default_factory=lambda: Demand(0))
    ceiling: float | None = None
    limits: tuple[str, ...] = ()
    """The limits of the chosen setting, in sentences, the tightest first."""
    regime: str = ""
    """The kind of work, in a sentence."""
    most: str = ""
    """The reason why no more workers help, in words."""
    capped: bool = False
    """Whether that reason, and no measurement, keeps the answer from more workers."""
    crowded: bool = False
    foreign_cpus: float | None = None
    """CPUs that other programs typically used meanwhile."""
    stream: bool = False
    asks_worker: bool = True
    batches: int | None = None
    """Batches in an epoch."""
    starts: str = ""
    """A sentence about start methods."""
    failure: str = ""

    def point(self, setting: Setting) -> Point | None:
        """The measurements of a setting, if there are any."""
        return next((each for each in self.points if each.setting == setting and each.blocks), None)

    @property
    def measured(self) -> bool:
        """Whether the chosen setting was measured."""
        return self.point(self.chosen) is not None

    @property
    def replayed(self) -> bool:
        """Whether the answer comes from one worker's batches alone."""
        return (
            not self.measured
            and not self.trifle
            and self.stopped != "failed"
            and self.work is not None
            and bool(self.work.batch_ns)
        )

    @property
    def fine(self) -> bool:
        """Whether data is not the bottleneck."""
        return self.stopped == "not the bottleneck"

    @property
    def trifle(self) -> bool:
        """Whether batches take so little that there was nothing to compare."""
        return self.stopped == "no worker can help"

    def separated(self, gain: Interval | None) -> bool:
        """Whether the answer is certain: it was compared with others, and none may be as good."""
        compared = sum(each.blocks > 0 for each in self.points) > 1
        return self.trifle or (self.measured and (compared or self.fine) and not rivals_left(self, gain))


@dataclass(frozen=True, slots=True)
class VerdictText:
    """The texts, as in Tuning."""

    verdict: str
    why: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    limit: str = ""
    gain: Interval | None = None


def say(case: VerdictCase) -> VerdictText:
    """All texts. They fit on a screen."""
    gain = gain_of(case)
    why = tuple(_why(case))[:_MOST_WHY]
    limit = ""
    if case.measured and not case.fine and len(case.limits) > 1:
        limit = case.limits[1]
    return VerdictText(_verdict(case, gain), why, tuple(_warnings(case))[:_MOST_WARNINGS], limit, gain)


def gain_of(case: VerdictCase) -> Interval | None:
    """Share of the step's time that the chosen setting saves. None: nothing was compared."""
    chosen, base = case.point(case.chosen), case.point(case.baseline)
    if chosen is None or base is None:
        return None
    if case.chosen == case.baseline:
        return Interval(0.0, 0.0, 0.0)
    return Interval(1 - chosen.ratio.middle, 1 - min(9.0, chosen.ratio.high), 1 - chosen.ratio.low)


def described(setting: Setting) -> str:
    """As one would say it: "4 workers", "8 threads as workers", "no workers", "2 workers with 8 threads each"."""
    phrases = [knob.phrase(setting) for knob in knobs.KNOBS if setting.workers or not knob.needs_workers]
    who, *how = filter(None, phrases)
    return f"{who} with {_listed(how)}" if how else who


def _verdict(case: VerdictCase, gain: Interval | None) -> str:
    chosen, base = described(case.chosen), described(case.baseline)
    if case.fine:
        most = (
            f"at most {case.ceiling:.1%} of a step's time" if case.ceiling is not None else "next to nothing"
        )
        return f"Data is not your problem: if it took no time at all, that would save {most}. Leave it as it is ({base})."
    if case.trifle and case.work is not None:
        made = duration(case.work.typical_ns / 1e9)
        keep = f"Keep {base}" if case.loader else f"Take {base}"
        return f"{keep}: a batch is made in {made}, and workers would save no more than that of a step."
    if not case.measured:
        reason = case.failure or (
            "it was interrupted" if case.stopped == "interrupted" else "there was no time"
        )
        if case.replayed:
            return f"Nothing was compared ({reason.rstrip('.')}); a replay of one worker's batches suggests {chosen}."
        return f"Nothing was measured ({reason.rstrip('.')}); a safe setting for this machine is {chosen}."
    doubt = _doubt(case, gain)
    if case.chosen == case.baseline:
        others = len([each for each in case.points if each.blocks]) - 1
        than = f"none of {counted(others, 'other setting')}" if others > 1 else "the other setting"
        if not others:
            return f"Keep {base}: there was no time to compare it with anything{doubt or ' (not separated)'}."
        verb = "is" if others > 1 else "is not"
        return f"Keep {base}: {than} {verb} faster by more than {TIE:.0%}{doubt}."
    if case.baseline.engine == "torch" and case.chosen.engine == "stoker":
        chosen = f"stoker's loader with {chosen}"
        base = f"torch's with {base}"
    instead = f" instead of {base}" if case.loader else ""
    if gain is None:
        return f"Take {chosen}{instead}: it could not be compared with {base}{doubt}."
    if not case.loader:
        instead = "" if case.baseline == case.chosen else f" rather than {base}"
    if gain.middle < TIE:
        return f"Take {chosen}{instead}: {_cheaper(case)}{doubt}."
    return f"Take {chosen}{instead}: {gain.middle:.0%} less time a step{doubt}."


def _cheaper(case: VerdictCase) -> str:
    """The gain in words if it is not time."""
    chosen, base = case.point(case.chosen), case.point(case.baseline)
    assert chosen is not None
    assert base is not None
    speed = "as fast" if abs(1 - chosen.ratio.middle) < TIE else "about as fast"
    if base.cpu_ns and chosen.cpu_ns < base.cpu_ns:
        return f"{speed}, with {1 - chosen.cpu_ns / base.cpu_ns:.0%} less CPU time"
    if base.memory_bytes and chosen.memory_bytes is not None and chosen.memory_bytes < base.memory_bytes:
        return f"{speed}, in {1 - chosen.memory_bytes / base.memory_bytes:.0%} less memory"
    if chosen.predicted_ns and base.predicted_ns and chosen.predicted_ns < base.predicted_ns * (1 - TIE):
        return f"no measurable gain, but the replay predicts {chosen.predicted_ns / base.predicted_ns:.0%} of the time"
    return f"{speed}, and simpler"


def rivals_left(case: VerdictCase, gain: Interval | None) -> tuple[Setting, ...]:
    """Rivals with another description, without a baseline that is certainly slower. So no two sentences contradict each other."""
    certain = gain is not None and gain.low >= TIE
    own = described(case.chosen)
    return tuple(
        each for each in case.rivals if described(each) != own and not (certain and each == case.baseline)
    )


def _doubt(case: VerdictCase, gain: Interval | None) -> str:
    rivals = rivals_left(case, gain)
    if not rivals:
        return ""
    names = list(dict.fromkeys(described(each) for each in rivals))
    named = _listed(names) if len(names) <= 3 else _listed([*names[:3], "others"])
    return f"; {named} may be as good (not separated)"


def _why(case: VerdictCase) -> Iterator[str]:
    if case.trifle:
        yield "Handing a batch over from a worker takes about as long as making it here."
        yield "A step that is as short makes even this count: give its time (--step-ms), and tune again."
        return
    if not case.measured:
        host = case.host
        if case.replayed:
            yield from (_sentence(each) for each in (*case.limits[:1], case.regime) if each)
        elif host is not None:
            yield f"By the machine alone: {host.reason or f'{host.cpus:g} CPUs'}; one is left to the training process."
        return
    if case.fine and case.demand.step_ns:
        yield f"A step takes {duration(case.demand.step_ns / 1e9)} without waiting for data."
    if case.limits:
        yield _sentence(case.limits[0])
    if case.regime and not case.fine and not (case.limits and case.regime.startswith(case.limits[0])):
        yield _sentence(case.regime)
    yield from _tie(case)
    if case.capped and case.most:
        yield f"Nothing beyond {described(case.chosen)} was tried: {case.most}."
    if case.starts:
        yield _sentence(case.starts)
    if case.ceiling is not None and not case.fine:
        yield f"Headspace: data that takes no time at all would save {case.ceiling:.0%} of the baseline's step."
    if case.host is not None and case.host.ranks > 1:
        yield f"Per rank: {case.host.ranks} ranks share {case.host.machine_cpus} CPUs, {case.host.cpus:g} for each."
    if case.chosen.workers and not case.fine:
        yield "To debug, set num_workers=0: samples are then made in your own process."


def _tie(case: VerdictCase) -> Iterator[str]:
    """The reason for this one among equally fast settings."""
    chosen = case.point(case.chosen)
    assert chosen is not None
    alike = [
        each
        for each in case.points
        if each.blocks
        and described(each.setting) != described(case.chosen)
        and each.ratio.middle <= chosen.ratio.middle * (1 + TIE)
    ]
    if not alike or case.fine:
        return
    named = _listed([described(each.setting) for each in alike[:3]])
    if case.chosen == case.baseline:
        yield f"Within {TIE:.0%} of it: {named}. A change needs a reason."
    elif min(each.cpu_ns for each in alike) >= chosen.cpu_ns * (1 + CPU_TIE):
        yield f"Within {TIE:.0%} of it: {named}. This one takes the least CPU time, {duration(chosen.cpu_ns / 1e9)} a batch."
    else:
        yield f"Within {TIE:.0%} of it: {named}. This one takes less memory, or is the simpler one."


def _warnings(case: VerdictCase) -> Iterator[str]:
    if case.failure and case.measured:
        yield _sentence(case.failure)
    if case.stream and not case.asks_worker:
        yield (
            "Every worker reads the whole stream: its code does not ask which worker it is in. With more than one, samples come "
            "several times. Give each its share (stoker doctor, STK502) and tune again."
        )
    elif case.stream:
        yield "The dataset is iterable: another number of workers reads its items in another order."
    if case.crowded:
        yield "Other programs left no CPU idle: on an idle machine the answer may differ."
    elif case.foreign_cpus is not None and case.foreign_cpus >= NEIGHBOUR:
        yield (
            f"Other programs used {case.foreign_cpus:.1f} CPUs meanwhile: on an idle machine the gain may lie outside its "
            "interval."
        )
    if case.batches is not None and 0 < case.batches < _FEW_BATCHES:
        yield f"An epoch has {counted(case.batches, 'batch', 'batches')}: it was repeated, so its files came from caches."
    if (
        case.measured
        and (case.chosen.kind.threads or case.chosen.threads > 1)
        and case.chosen != case.baseline
    ):
        yield "Threads use the dataset at the same time: its open files and caches must allow that."
    failed = [each for each in case.points if each.failure]
    if failed:
        shown = _listed([f"{described(each.setting)} ({each.failure.rstrip('.')})" for each in failed[:2]])
        more = f" and {len(failed) - 2} more" if len(failed) > 2 else ""
        yield f"Could not be run: {shown}{more}."


def _listed(words: Sequence[str]) -> str:
    words = list(dict.fromkeys(words))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _sentence(text: str) -> str:
    text = text.strip()
    return capitalised(text) + ("" if text.endswith((".", "!", "?")) else ".")
