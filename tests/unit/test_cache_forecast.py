"""What a cache would gain, told before anybody spends memory: the arithmetic, and the verdict's finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stoker._record.finding import Edit
from stoker._record.schema import CacheUse, LoaderRecord
from stoker._runtime.simulation.cache_forecast import (
    COPY_BYTES_PER_S,
    LOOK_UP_NS,
    CacheCase,
    CacheWay,
    cached_work,
    forecast,
)
from stoker._runtime.simulation.work import Work
from stoker._tools.advise.ranking import ranked
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.facts.randomness import RandomnessFacts
from stoker._tools.report.verdict.codes import VerdictFinding
from stoker._tools.report.verdict.verdict import judge
from tests.unit.doctor import given
from tests.unit.records import MS, SECOND, loader, machine, run, steps

GIB = 1 << 30
PICTURE_BYTES = 150_528
WHOLE = CacheWay('dataset = stoker.cache(dataset, budget="{budget}")', 6 * MS, PICTURE_BYTES)
FACTS = CacheCase(samples=10_000, sample_ns=6 * MS, epochs=3, room_bytes=4 * GIB)


def test_a_hit_costs_a_look_up_and_the_copy_of_its_bytes() -> None:
    found = forecast(FACTS, [WHOLE])
    assert found is not None
    assert found.hit_ns == pytest.approx(LOOK_UP_NS + PICTURE_BYTES / COPY_BYTES_PER_S * 1e9)
    assert found.saved_ns == pytest.approx(6 * MS - found.hit_ns)
    assert found.left_ns == pytest.approx(found.hit_ns)


def test_the_budget_holds_all_samples_and_is_what_one_types() -> None:
    found = forecast(FACTS, [WHOLE])
    assert found is not None
    assert found.edit == 'dataset = stoker.cache(dataset, budget="1.5GiB")'
    assert 10_000 * PICTURE_BYTES < found.budget_bytes <= 1.5 * GIB
    small = forecast(replace(FACTS, samples=100), [WHOLE])
    assert small is not None
    assert small.edit == 'dataset = stoker.cache(dataset, budget="15MiB")'
    tiny = forecast(replace(FACTS, samples=10), [replace(WHOLE, part_bytes=64)])
    assert tiny is not None
    assert 'budget="1MiB"' in tiny.edit


def test_the_text_has_the_numbers() -> None:
    found = forecast(FACTS, [WHOLE])
    assert found is not None
    assert found.text == (
        "a cache of 1.5 GiB holds all 10,000 samples (of 4 GiB available): from the second epoch on a sample costs a worker "
        "0.0652 ms instead of 6 ms"
    )


@pytest.mark.parametrize(
    "facts",
    [
        replace(FACTS, epochs=1),
        replace(FACTS, room_bytes=GIB),  # does not fit
        replace(FACTS, room_bytes=int(1.7 * GIB)),  # fits, and leaves nothing to the training
        replace(FACTS, room_bytes=None),
        replace(FACTS, samples=None),
        replace(FACTS, samples=0),
        replace(FACTS, sample_ns=0),
    ],
)
def test_nothing_is_said_where_it_does_not_fit_or_nobody_knows(facts: CacheCase) -> None:
    assert forecast(facts, [WHOLE]) is None


def test_nothing_is_said_where_a_look_up_costs_as_much() -> None:
    quick = replace(FACTS, sample_ns=70_000)
    assert forecast(quick, [replace(WHOLE, part_ns=70_000)]) is None
    assert forecast(FACTS, []) is None


def test_epochs_that_nobody_knows_do_not_silence_it() -> None:
    assert forecast(replace(FACTS, epochs=None), [WHOLE]) is not None


def test_of_several_ways_the_one_that_saves_most_and_fits_is_taken() -> None:
    decoded = CacheWay("decoded {budget}", 5 * MS, 600_000, "results of dataset.loader")
    resized = CacheWay("resized {budget}", 4 * MS, PICTURE_BYTES)
    facts = replace(FACTS, room_bytes=16 * GIB)
    best = forecast(facts, [resized, decoded])
    assert best is not None
    assert (best.edit, best.what) == ("decoded 5.8GiB", "results of dataset.loader")
    smaller = forecast(FACTS, [resized, decoded])
    assert smaller is not None
    assert smaller.edit == "resized 1.5GiB"


def test_the_work_with_a_cache_keeps_what_is_no_samples_work() -> None:
    work = Work(
        rows=10, batch_ns=(80 * MS, 100 * MS), cpu_ns=(70 * MS, 90 * MS), collate_ns=20 * MS, handover_ns=MS
    )
    found = forecast(FACTS, [WHOLE])
    assert found is not None
    then = cached_work(work, found)
    assert then.typical_ns == pytest.approx(work.typical_ns - 10 * found.saved_ns, abs=2)
    assert (then.collate_ns, then.handover_ns) == (20 * MS, MS)
    assert all(cpu <= whole for cpu, whole in zip(then.cpu_ns, then.batch_ns, strict=True))


# In a verdict


COMPUTE = {("fetch", 0, "compute"): 0.9, ("start", -1, "start_up"): 0.1}


def recorded(**changed: Any) -> LoaderRecord:
    """100 batches of 64; 20 ms of a worker's time each, for a step of 10 ms."""
    usual: dict[str, Any] = {
        "steps": steps(100, make_ms=20), "samples": 3200, "sample_bytes": PICTURE_BYTES, "totals": {"epochs": 2},
    }  # fmt: skip
    return loader(COMPUTE, **{**usual, **changed})


def said(record: LoaderRecord, **changed: Any) -> list[VerdictFinding]:
    found = judge(run(record, **changed)).loaders[0].findings
    return [each for each in found if each.code == "sample-cache"]


def test_the_verdict_says_what_a_cache_would_gain_and_the_edit() -> None:
    (found,) = said(recorded())
    assert found.edit == Edit(
        'dataset = stoker.cache(dataset, budget="470MiB")', None, "train.py:31", "cache"
    )
    assert found.evidence.startswith("A cache of 470 MiB holds all 3,200 samples (of 16 GiB available)")
    assert found.gain is not None
    assert found.gain.at_most  # nobody knows whether samples are random
    assert 0.3 < (found.gain.share or 0) <= 0.5
    assert "refuses" in found.advice


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"totals": {"epochs": 1}, "samples": 6400}, "one whole epoch"),
        ({"samples": None}, "a stream"),
        ({"samples": 3_200_000}, "does not fit"),
        ({"sample_bytes": None}, "nobody knows how large a sample is"),
        ({"steps": {}}, "nobody knows what a sample costs"),
        ({"cache": CacheUse(hits=1)}, "there is one"),
        ({"executor": "ray"}, "workers are on other machines"),
    ],
)
def test_the_verdict_is_silent_where_a_cache_is_no_help(changed: dict[str, Any], why: str) -> None:
    assert not said(recorded(**changed)), why


def test_ranks_have_a_share_of_the_epoch_each() -> None:
    whole = recorded(totals={"epochs": 1}, samples=12_800)
    assert said(whole)  # half of it in one epoch: the run was cut short
    assert not said(whole, world_size=2)


def test_a_run_that_does_not_wait_is_told_nothing_of_caches() -> None:
    fine = loader(
        {("fetch", 0, "compute"): 0.001}, steps=steps(100), samples=3200, sample_bytes=9, totals={"epochs": 2}
    )
    assert not said(fine)


def test_little_memory_is_no_place_for_a_cache() -> None:
    assert not said(recorded(), machine=machine(available_bytes=256 << 20))


def test_advise_ranks_it_among_the_edits() -> None:
    edits = ranked(judge(run(recorded())), [])
    assert "sample-cache" in [each.code for each in edits]
    assert len(edits) <= 5


def examined(*, varies: bool) -> Diagnosis:
    """What the doctor saw of the same loader's samples."""
    facts = RandomnessFacts((0, 1), 4, False, varies, not varies, not varies, True)
    return Diagnosis(
        "train.py:loader", (), (), (), {"target": given.target(site="train.py:31"), "randomness": facts}
    )


def test_advise_types_the_edit_only_where_samples_were_seen_to_be_the_same() -> None:
    verdict = judge(run(recorded()))
    (unknown,) = [each for each in ranked(verdict, []) if each.code == "sample-cache"]
    (steady,) = [each for each in ranked(verdict, [examined(varies=False)]) if each.code == "sample-cache"]
    assert (unknown.edit.kind, steady.edit.kind) == ("shown", "cache")
    assert unknown.edit.after == steady.edit.after
    assert "sample-cache" not in [each.code for each in ranked(verdict, [examined(varies=True)])]


def test_the_wait_that_is_hidden_cannot_be_gained() -> None:
    (found,) = said(recorded(totals={"epochs": 2, "hidden_ns": SECOND // 2}))
    assert found.gain is not None
    (open_,) = said(recorded())
    assert open_.gain is not None
    assert (found.gain.share or 0) < (open_.gain.share or 0)
