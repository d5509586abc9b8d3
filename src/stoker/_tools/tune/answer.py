"""Builds the answer of a search, a Tuning, at its end or at any time before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stoker._runtime.simulation import limits, predictions, scaling_law
from stoker._runtime.simulation.cache_forecast import CacheForecast
from stoker._runtime.simulation.point import Point
from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.edits import edits
from stoker._tools.tune.knobs.multiprocessing_context import start_sentence
from stoker._tools.tune.model import verdict
from stoker._tools.tune.model.cache import cache_forecast, cache_gain
from stoker._tools.tune.model.prior import predict
from stoker._tools.tune.model.regime import Regime, regime
from stoker._tools.tune.result import Tuning
from stoker._tools.tune.safety import may_use_threads, replayed_workers, safe_setting, without_threads
from stoker._tools.tune.search import Search

_MUCH = 0.25
"""Share of the time that a replay has to promise before it counts without a measurement of its own."""


class AnswerBuilder:
    """Builds the answers of one search."""

    def __init__(self, search: Search, name: str) -> None:
        self._search = search
        self._name = name

    def now(self, *, whole: bool = True) -> Tuning:
        """The answer as of now. Without ``whole`` it lacks the curve and the replay's predictions, which take some time."""
        search = self._search
        target, race, work = search.target, search.race, search.work
        baseline = target.setting if target is not None else Setting()
        best = race.best if race is not None else None
        fine = search.stopped == "not the bottleneck"
        if fine or search.stopped == "no worker can help":
            chosen = baseline
        else:
            chosen = self._safe() if best is None else best
        ended = search.stopped not in ("", "interrupted")  # before that, the best so far is what was measured
        if best == baseline and ended and not fine and (likelier := self._likelier(baseline)) is not None:
            best, chosen = None, likelier
        rivals: tuple[Setting, ...] = ()
        if race is not None and best is not None and not fine:
            rivals = (*race.standings.rivals(chosen), *search.untried)
        points = self._points()
        known = search.prior
        kind = self._regime(points, chosen)
        case = verdict.VerdictCase(
            baseline=baseline,
            chosen=chosen,
            loader=target is not None and target.loader,
            points=points,
            rivals=rivals,
            stopped=search.stopped,
            host=search.host,
            work=work,
            demand=search.demand,
            ceiling=self._ceiling(points, baseline),
            limits=self._limits(chosen),
            regime=kind.sentence if kind is not None else "",
            most=known.most_reason if known is not None else "",
            capped=known is not None and chosen.kind.processes and chosen.workers >= known.edge,
            crowded=race is not None and race.crowded,
            foreign_cpus=None if race is None else race.foreign_cpus,
            stream=target is not None and target.stream,
            asks_worker=target is None or target.asks_worker,
            batches=target.batches if target is not None else None,
            starts=start_sentence(search.starts, baseline.start_method, search.host.start_method)
            if chosen.workers
            else "",
            failure=search.failure,
        )
        said = verdict.say(case)
        cache, saved = self._cache(chosen) if whole else (None, None)
        typed = edits(target, chosen) if target is not None else ()
        return Tuning(
            target=self._name,
            batch_size=target.batch_size if target is not None else None,
            baseline=baseline,
            recommended=chosen,
            verdict=said.verdict,
            why=said.why,
            regime="idle" if fine else kind.name if kind is not None else "unknown",
            warnings=(
                *search.notes,
                *said.warnings,
                *(kind.warnings if kind is not None and not fine else ()),
            ),
            separated=case.separated(said.gain),
            gain=said.gain,
            ceiling=case.ceiling,
            limit=said.limit,
            stopped=search.stopped,
            spent_s=search.spent_s,
            host=search.host,
            work=work,
            demand=search.demand,
            points=points,
            curve=self._curve(points) if whole else None,
            oracle=self._oracle(points, chosen) if whole else None,
            starts={each.method: each.first_ns for each in search.starts},
            edit=typed[0] if typed else None,
            edits=typed,
            file=target.file if target is not None else None,
            line=target.line if target is not None else None,
            failure=search.failure,
            cache=cache,
            cache_gain=saved,
        )

    def _cache(self, chosen: Setting) -> tuple[CacheForecast | None, float | None]:
        """What a cache would gain beside the chosen setting, and how much. (None, None): nothing to speak of."""
        search = self._search
        if search.work is None or search.sample_parts is None or search.target is None:
            return None, None
        found = cache_forecast(search.work, search.host, search.sample_parts, search.target.samples)
        if found is None:
            return None, None
        gain = cache_gain(found, chosen, search.host, search.work, search.demand)
        return (None, None) if gain is None else (found, gain)

    def _likelier(self, baseline: Setting) -> Setting | None:
        """What the replay suggests where nothing but the baseline was measured, if that is much faster; else None."""
        search = self._search
        measured = {each.setting for each in self._points() if each.blocks}
        if measured != {baseline} or search.work is None or not search.work.batch_ns:
            return None
        found = self._safe()
        now_ns = predict(baseline, search.host, search.work, search.demand).interval_ns
        then_ns = predict(found, search.host, search.work, search.demand).interval_ns
        return found if then_ns < (1 - _MUCH) * now_ns else None

    def _safe(self) -> Setting:
        search = self._search
        batches = search.target.batches if search.target is not None else None
        replayed = None
        if search.stopped != "failed":
            replayed = replayed_workers(search.host, search.work, search.demand, search.prior, batches)
        target, safety = search.target, search.thread_safety
        if target is not None and safety is not None and not may_use_threads(safety, target.setting):
            target = replace(target, setting=without_threads(target.setting))
        return safe_setting(search.host, target, replayed, search.work, search.demand)

    def _points(self) -> tuple[Point, ...]:
        search = self._search
        points = search.race.points() if search.race is not None else ()
        work = search.work
        if work is None or not work.batch_ns:
            return points
        expected = search.race.expected if search.race is not None else {}
        for each in points:
            if each.setting not in expected:
                run = predict(each.setting, search.host, work, search.demand)
                expected[each.setting] = run.interval_ns
        return tuple(replace(each, predicted_ns=expected[each.setting]) for each in points)

    def _regime(self, points: tuple[Point, ...], chosen: Setting) -> Regime | None:
        search = self._search
        if search.work is None or not search.work.batch_ns:
            return None
        ours = [each for each in points if each.blocks and each.setting.engine == "stoker"]
        return regime(search.work, search.host, search.demand, points=ours, executor=chosen.executor)

    def _ceiling(self, points: tuple[Point, ...], baseline: Setting) -> float | None:
        """The headspace, from the race if there was one: it has more blocks than the first measurement."""
        search = self._search
        if search.stopped == "not the bottleneck" or not search.demand.step_ns:
            return search.ceiling
        measured = next((each for each in points if each.setting == baseline and each.blocks), None)
        if measured is None:
            return search.ceiling
        step_ns = search.demand.step_ns / max(1, search.demand.burst)
        return max(0.0, 1 - step_ns / measured.interval_ns.middle)

    def _limits(self, chosen: Setting) -> tuple[str, ...]:
        search = self._search
        if search.work is None or not search.work.batch_ns:
            return ()
        found = limits.limits(
            search.work, search.host, search.demand, workers=chosen.workers * chosen.threads
        )
        return tuple(each.sentence for each in found if chosen.threads == 1 or each.name != "workers")

    def _curve(self, points: tuple[Point, ...]) -> dict[str, Any] | None:
        """The scaling curve of stoker's worker processes: settings that differ only in the number of workers."""
        of = [
            (each.setting.workers, each.interval_ns.middle)
            for each in points
            if each.blocks
            and each.setting.engine == "stoker"
            and (not each.setting.workers or each.setting.kind.processes)
            and each.setting.threads == 1
        ]
        search = self._search
        own_ns = search.work.handling_ns if search.work is not None else 0.0
        floor_ns = search.demand.batch_ns + own_ns if search.demand.step_ns else 0.0
        return scaling_law.curve(of, floor_ns=floor_ns) if of else None

    def _oracle(self, points: tuple[Point, ...], chosen: Setting) -> dict[str, Any] | None:
        search = self._search
        if search.work is None or not search.work.batch_ns:
            return None
        case = predictions.SimulationCase(chosen, search.host.cpus, search.demand)
        return {
            "what_if": predictions.what_if(case, search.work),
            "error": predictions.error([each for each in points if each.blocks]),
        }
