"""What the scaling act says of what it measured, and how many workers it tries."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker._record.run_identity import run_here
from stoker._record.schema import LoaderRecord, Machine, RunRecord
from stoker._tools.demo import curves, flavours, gains, loader_rate, other_load
from stoker._tools.demo.act import ActContext
from stoker._tools.demo.acts import gap, profile, scaling
from stoker._tools.render.section import Chart, SideBySide
from tests.unit import demos

GAINS = {
    "sleep": {"torch": [1, 2, 7.6], "stoker": [1, 2, 7.9]},
    "jpeg": {"torch": [1, 1.9, 1.8], "stoker": [1, 1.9, 1.9]},
    "stragglers": {"torch": [1, 1.3, 3], "stoker": [1, 1.5, 6]},
}


@pytest.mark.parametrize(
    ("cpus", "quick", "expected"),
    [
        (1, False, [0, 1, 2, 4]),
        (2, False, [0, 2, 4, 8]),
        (2, True, [0, 2, 4]),
        (4, False, [0, 2, 4, 8, 16]),
        (192, True, [0, 192, 384]),
    ],
)
def test_how_many_workers_are_tried(cpus: int, quick: bool, expected: list[int]) -> None:
    assert scaling.counts(cpus, quick=quick) == expected


@given(cpus=st.integers(1, 512), quick=st.booleans(), gib=st.integers(0, 64))
def test_few_counts_that_include_the_cpus(cpus: int, quick: bool, gib: int) -> None:
    found = scaling.counts(cpus, quick=quick, available_bytes=gib << 30)
    assert found == sorted(set(found))
    assert len(found) <= 6
    assert {0, cpus} <= set(found)
    assert max(found) <= max(cpus, min(4 * cpus, gib * 8))


def test_the_screen_has_a_table_and_says_who_is_faster() -> None:
    assert gains.lines(demos.scaling(GAINS)) == [
        "8 workers to 0  sleep   jpeg stragglers",
        "torch            7.6×   1.8×       3.0×",
        "stoker           7.9×   1.9×       6.0×",
        "Past 2 CPUs sleep and stragglers gain more, jpeg does not.",
        "stoker to torch: 2.0× stragglers; alike sleep, jpeg.",
    ]
    assert gains.headline(demos.scaling(GAINS)) == (
        "8 workers on 2 CPUs, against none: the sleep kind 7.9×, the jpeg kind 1.9×, the stragglers kind 6.0×. stoker is"
        " 2.0× as fast as torch for the stragglers kind. They are alike for the sleep kind and the jpeg kind."
    )


def test_one_slow_point_does_not_bend_a_curve() -> None:
    """Computing, where the point with as many workers as CPUs was disturbed by what nobody sees."""
    slow = {"jpeg": {"torch": [1.0, 1.2, 1.9, 1.9], "stoker": [1.0, 1.3, 2.0, 1.9]}}
    assert gains.bend(demos.scaling(slow, counts=(0, 2, 4, 8))) == "Past 2 CPUs jpeg gains no more."
    assert (
        gains.bend(demos.scaling(slow, counts=(0, 2, 4, 8), cpus=8))
        == "More workers than 8 CPUs were not tried."
    )
    assert (
        gains.bend(demos.scaling(slow, counts=(0, 2, 4, 8), cpus=16))
        == "More workers than 16 CPUs were not tried."
    )


def test_it_says_so_where_torch_is_faster() -> None:
    slower = {"sleep": {"torch": [1.0, 2.0, 8.0], "stoker": [1.0, 2.0, 4.0]}}
    assert gains.lines(demos.scaling(slower))[-1] == "stoker to torch: 0.5× sleep."
    assert gains.headline(demos.scaling(slower)).endswith(
        "torch is 2.0× as fast as stoker for the sleep kind."
    )


def test_nothing_is_concluded_from_luck() -> None:
    crowded = demos.scaling(GAINS) | {"others": 0.6}
    assert gains.lines(crowded)[3:] == [
        "Other programs used the CPUs too, so the demo does not say where it bends or which loader is faster."
    ]
    assert "the demo does not say" in gains.headline(crowded)
    assert "the demo does not say" in str(curves.sections(crowded)[0])
    assert not gains.crowded(demos.scaling(GAINS) | {"others": None})

    point = demos.scaling({"sleep": GAINS["sleep"]})["flavours"][0]["points"][2]
    point["torch"]["rates"], point["stoker"]["rates"] = [1.0, 1.0, 1.0], [0.9, 1.4, 1.4]
    assert gains.compared(point) == "alike"
    point["stoker"]["rates"] = [1.2, 1.4, 1.4]
    assert gains.compared(point) == "1.4×"
    point["stoker"]["rates"] = [0.7, 0.7]
    assert gains.compared(point) == "0.7×"
    point["stoker"]["rates"] = [0.8, 0.8]
    assert gains.compared(point) == "alike", "of two rounds"
    point["stoker"]["rates"] = [1.4]
    assert gains.compared(point) == "alike", "of one"
    point["stoker"]["rates"] = [1.6]
    assert gains.compared(point) == "1.6×"


def test_rounds_that_others_disturbed_are_set_aside() -> None:
    result = demos.scaling({"sleep": GAINS["sleep"]})
    [flavour] = result["flavours"]
    none, _, last = flavour["points"]
    for point in flavour["points"]:
        for kind in gains.LOADERS:
            for what, seen in point[kind].items():
                point[kind][what] = [seen[0], seen[0] / 4]
        point["others"] = [0.02, 0.6]
    assert (gains.gain(flavour, last, "torch"), gains.compared(last)) == (7.6, "alike")
    assert not gains.crowded(result)
    assert "medians of 1 round; bars" in str(curves.sections(result)[0])
    assert (
        "In 3 of 6 rounds of single points others had 15% of the CPUs or more: they were set aside."
        in str(curves.sections(result)[0])
    )
    none["others"] = [0.6, 0.2]  # the better of two bad ones
    assert gains.gain(flavour, last, "torch") == 4 * 7.6
    assert gains.crowded(result), "a third of the points"
    assert "but for 1 of 3 points, which have no better one" in str(curves.sections(result)[0])
    none["others"] = [None, None]
    assert gains.used(none, "torch", "rates") == [1000.0, 250.0]


def test_whoever_was_disturbed_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second round of all goes to others; the budget is never spent, so that only good rounds end it."""
    seen: list[tuple[int, str]] = []

    def stretch(
        kind: str, dataset: object, workers: int, seconds: float, settle_s: float
    ) -> loader_rate.LoaderRate:
        seen.append((workers, kind))
        return loader_rate.LoaderRate(0.01, 100, 1.0, 0.001, 0.1)

    class Others:
        def share(self) -> float:
            return 0.5 if len(seen) == 4 else 0.0

    monkeypatch.setattr(loader_rate, "measure_rate", stretch)
    monkeypatch.setattr(scaling, "OtherLoad", Others)
    monkeypatch.setattr(flavours, "MAKERS", {"sleep": flavours.MAKERS["sleep"]})
    result = scaling.run(ActContext(False, 1, "", lambda what, share: None, budget_s=60.0))
    points = {each["workers"]: each for each in result["flavours"][0]["points"]}
    assert {workers: len(each["others"]) for workers, each in points.items()} == {0: 3, 1: 4, 2: 3, 4: 3}
    assert points[1]["others"] == [0.5, 0.0, 0.0, 0.0]
    assert [workers for workers, _ in seen[:12:2]] == [0, 1, 2, 4, 1, 0]
    assert {frozenset(kind for _, kind in seen[at : at + 2]) for at in range(0, len(seen), 2)} == {
        frozenset(gains.LOADERS)
    }
    assert result["rounds"] == 3


def test_what_the_host_takes_is_others(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(10.0, 1.0), (13.0, 3.0), (10.0, None), (None, None)])

    class Read:
        def read(self) -> SimpleNamespace:
            busy_s, steal_s = next(readings)
            return SimpleNamespace(busy_cpu_ns=busy_s and busy_s * 1e9, steal_ns=steal_s and steal_s * 1e9)

    clock = iter([100.0, 104.0, 200.0, 204.0])
    own = iter([1.0, 2.0, 1.0, 2.0])
    monkeypatch.setattr(other_load, "CounterReader", Read)
    monkeypatch.setattr(other_load, "_own_s", lambda: next(own))
    monkeypatch.setattr(other_load, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert other_load.OtherLoad().share() == (3 + 2 - 1) / 4 / 2
    assert other_load.OtherLoad().share() is None


def test_a_curve_for_every_flavour_with_its_table() -> None:
    curve, crowd = curves.sections(demos.scaling(GAINS))
    [beside] = [each for each in curve.parts if isinstance(each, SideBySide)]
    charts = [part for _, parts in beside.columns for part in parts if isinstance(part, Chart)]
    assert [each.id for each in charts] == ["scaling-sleep", "scaling-jpeg", "scaling-stragglers"]
    assert [row[0] for row in charts[0].table.rows] == ["0", "2", "8"]
    assert charts[2].table.rows[2][-1] == "2.0×"
    [beside] = [each for each in crowd.parts if isinstance(each, SideBySide)]
    [(label, (chart,))] = beside.columns
    assert isinstance(chart, Chart)
    assert label == "The jpeg kind"
    assert [row[:3] for row in chart.table.rows] == [
        ("2", "torch", "1.90×"), ("2", "stoker", "1.90×"), ("8", "torch", "1.80×"), ("8", "stoker", "1.90×"),
    ]  # fmt: skip
    assert (
        chart.summary
        == "CPU time a row with 2 and with 8 workers: torch 2.00 to 2.00 ms, stoker 2.00 to 2.00 ms."
    )


def test_what_was_left_out_is_said() -> None:
    result = demos.scaling({"sleep": GAINS["sleep"]})
    result["flavours"].append(
        {
            "name": "jpeg",
            "title": "decoding JPEGs",
            "row_ms": None,
            "left_out": "Pillow is not installed",
            "points": [],
        }
    )
    [section] = curves.sections(result)
    assert "Decoding JPEGs was left out. Pillow is not installed" in str(section)
    result["flavours"] = result["flavours"][1:]
    assert gains.lines(result) == [gains.headline(result)]
    assert "no time" in str(curves.sections(result))


@pytest.mark.parametrize("calls", [1, 20])
def test_ctrl_c_leaves_what_was_measured(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Of the flavours that sleep, whose rows need no sizing, with rates that nobody has measured."""
    seen: list[tuple[str, int]] = []

    def stretch(
        kind: str, dataset: object, workers: int, seconds: float, settle_s: float
    ) -> loader_rate.LoaderRate:
        if len(seen) == calls:
            raise KeyboardInterrupt
        seen.append((kind, workers))
        return loader_rate.LoaderRate(0.01, 100 + workers, 1.0, 0.001, 0.1)

    monkeypatch.setattr(loader_rate, "measure_rate", stretch)
    monkeypatch.setattr(flavours, "MAKERS", {name: flavours.MAKERS[name] for name in ("sleep", "stragglers")})
    stage = ActContext(False, 2, "", lambda what, share: None, budget_s=60.0)
    if calls == 1:
        with pytest.raises(KeyboardInterrupt):
            scaling.run(stage)
        return
    result = scaling.run(stage)
    assert len(seen) == calls
    assert [len(each["points"]) for each in result["flavours"]] == [4, 4]
    assert [workers for _, workers in seen[:16]] == [0] * 4 + [2] * 4 + [4] * 4 + [8] * 4
    assert {kind for kind, _ in seen[:4]} == set(gains.LOADERS)


def test_the_gaps_in_two_lines_and_a_chart() -> None:
    result = {
        "workers": 2, "batch": 8, "row_ms": 1.0, "rounds": 1,
        "gaps_ms": {"torch": [60.0, 70.0, 80.0], "torch, persistent": [9.0], "stoker": [50.0], "stoker, prefetch_epochs": [0.3]},
    }  # fmt: skip
    assert gap.lines(result) == ["torch  70 ms, persistent 9.0 ms", "stoker 50 ms, prefetch_epochs 0.3 ms"]
    [section] = gap.sections(result)
    [chart] = [each for each in section.parts if isinstance(each, Chart)]
    assert [row[:2] for row in chart.table.rows][-1] == ("stoker, prefetch_epochs", "0.3")
    assert "shortest with stoker, prefetch_epochs" in chart.summary


def test_a_record_is_thinned_and_says_so() -> None:
    loader = LoaderRecord(
        "loader", "stoker", "process", "Rows", "here.py:3", steps={"seq": list(range(1000))}
    )
    kept = profile.thinned(RunRecord(run_here(), Machine(), [loader]))
    assert (len(loader.steps["seq"]), loader.steps_dropped, loader.site) == (600, 400, None)
    assert loader.steps["seq"][299:301] == [299, 700]
    assert kept.run.ended
    loader.totals.wait_ns, loader.totals.step_ns = 1, 3
    result = {"step_ms": 7.0, "runs": [{"label": "torch", "record": kept.as_dict()}]}
    assert profile.lines(result) == ["Waiting, of steps of 7 ms with straggling rows: torch 25%."]
