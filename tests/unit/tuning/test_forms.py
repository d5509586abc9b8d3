"""What a tuning looks like: on a screen of 80 to 100 columns, as JSON that is read again, as Markdown; and what is to be typed."""

from __future__ import annotations

import ast
import json
from dataclasses import asdict, replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker._record.dataset_identity import machine_key
from stoker._runtime.autoscale.profile import Profile
from stoker._runtime.simulation.point import Interval
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand
from stoker._tools.render.terminal import MOST_LINES
from stoker._tools.tune.edits import call, edits
from stoker._tools.tune.forms import data, html, markdown, screen, words
from stoker._tools.tune.save_profile import with_saved_profile
from stoker.errors import RecordError
from tests.unit.tuning.tunings import BEST, NOW, OTHER, point, target, tuning

SETTINGS = st.builds(
    Setting,
    workers=st.integers(0, 64),
    prefetch=st.none() | st.integers(1, 16),
    executor=st.sampled_from(["process", "thread"]),
    start_method=st.none() | st.sampled_from(["fork", "spawn", "forkserver"]),
    split=st.none() | st.booleans(),
    threads=st.integers(1, 16),
    pin=st.booleans(),
    engine=st.sampled_from(["stoker", "torch"]),
)
IDLE: dict[str, Any] = {
    "verdict": "Data is not your problem.", "regime": "idle", "stopped": "not the bottleneck", "ceiling": 0.01, "points": (),
    "edits": (), "edit": None, "gain": None, "why": (), "warnings": (), "profile": "", "limit": "",
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 100])
def test_a_screen_says_what_to_do_and_why(width: int) -> None:
    text = screen.render(tuning(), width, target="train.py:loader")
    lines = text.splitlines()
    assert [line.split()[0] for line in lines if line[:1].strip()] == [
        "Tuned", "Verdict", "Why", "Evidence", "Next", "Note",
    ]  # fmt: skip
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= width
    flat = " ".join(text.split())
    assert "num_workers=0 → num_workers=3, prefetch_factor=4, persistent_workers=True in train.py:3" in flat
    assert "from stoker import DataLoader" in flat
    assert "3 workers × 4 (take)" in text
    assert "no workers (now)" in text
    assert "−41% of the step's time (90 %: −38% to −44%)" in text
    assert "0.59 (0.57–0.62)" in text
    assert "Failed: 16 workers: RuntimeError" in text


def test_a_wide_screen_has_cpu_and_memory() -> None:
    lines = screen.render(tuning()).splitlines()
    heads = next(line for line in lines if line.startswith("Evidence"))
    assert "CPU" in heads
    assert "memory" in heads
    assert "300 MiB" in next(line for line in lines if "(take)" in line)


def test_where_data_is_not_the_bottleneck_nothing_is_to_be_changed() -> None:
    text = screen.render(tuning(NOW, **IDLE), target="train.py:loader")
    assert "Nothing to change." in text
    assert "−" not in text
    assert "data costs 1% of the step now" in text
    assert "--fix" not in text


def test_a_failure_is_said_and_the_answer_stays() -> None:
    broken = tuning(
        failure="train.py:loader: sample 3 raised ValueError: no", stopped="failed", points=(), gain=None
    )
    text = screen.render(broken)
    assert "sample 3 raised ValueError: no" in text
    assert "num_workers=3" in text
    assert markdown.render(broken).count("ValueError") == 1


def test_what_is_not_known_is_not_shown_as_zero() -> None:
    bare = tuning(
        host=None, work=None, demand=Demand(0), ceiling=None, gain=None, points=(point(NOW, 5, 1, memory_bytes=None),),
        batch_size=None, limit="", stopped="", why=(), warnings=(),
    )  # fmt: skip
    text = screen.render(bare, target="train.py:loader")
    assert "What a training step takes is not known" in text
    assert "--step-ms N" in text
    assert any(line.endswith("–") for line in text.splitlines())
    assert "0 bytes" not in text
    assert "None" not in text


def test_a_crowd_of_points_still_fits_one_screen() -> None:
    points = (
        *(point(Setting(count, 2), count, count) for count in range(1, 40)),
        point(NOW, 99, 99),
        point(BEST, 98, 98),
    )
    text = screen.render(tuning(points=points, why=("long " * 60,) * 5, warnings=("more " * 50,) * 5))
    assert len(text.splitlines()) <= MOST_LINES
    assert "(take)" in text
    assert "(now)" in text
    assert "persistent_workers=True" in text


def test_the_curve_and_the_replay_are_told_in_a_line_each() -> None:
    told = tuning(
        curve={"knee": 3, "loss": 0.12, "loss_at": 8, "best": 4},
        oracle={
            "error": {"points": 4, "median": 0.061},
            "what_if": [
                {"name": "as it is", "interval_ns": 9e6},
                {"name": "4 more cores and workers", "interval_ns": 7.5e6},
                {"name": "an accelerator twice as fast", "interval_ns": None},
            ],
        },
    )
    assert words.scaling_text(told) == "More than 3 workers gain little; 8 lose 12% of the throughput of 4."
    assert words.prediction_text(told) == (
        "The replay was off by 6% (the median of 4 points); it says: 4 more cores and workers 7.5 ms."
    )
    for nothing in (
        None,
        {},
        {"error": {"points": 0, "median": None}, "what_if": []},
        {"knee": None, "loss": 0.01},
    ):
        assert (
            words.scaling_text(tuning(curve=nothing)) == words.prediction_text(tuning(oracle=nothing)) == ""
        )


def test_settings_in_words() -> None:
    assert words.setting_name(Setting()) == "no workers"
    assert words.setting_name(Setting(1, engine="torch")) == "torch's: 1 worker"
    assert words.setting_name(OTHER) == "8 threads × 2, 4 threads each, spawn, split, pinned"


def test_a_slower_end_of_the_gain_is_told_with_its_sign() -> None:
    told = words.saving_text(tuning(gain=Interval(0.02, -0.01, 0.05)))
    assert told == "−2% of the step's time, and not for certain: between 1% more and 5% less (90 %)"


def test_json_has_what_others_go_by() -> None:
    told = json.loads(data.render(tuning()))
    assert (told["format"], told["version"]) == ("stoker-tuning", 1)
    assert told["recommended"] == {"num_workers": 3, "prefetch_factor": 4, "persistent_workers": True}
    assert told["baseline"] == {"num_workers": 0}
    assert told["changed"] is True
    assert told["points"][1]["kept"] is True
    assert told["points"][1]["ratio"] == {"middle": 0.59, "low": 0.57, "high": 0.62}
    assert told["work"]["off_share"] == pytest.approx(1 - 30.5 / 32)
    assert told["edit"]["after"] == "num_workers=3, prefetch_factor=4, persistent_workers=True"
    for name in (
        "verdict", "why", "regime", "separated", "gain", "ceiling", "limit", "curve", "oracle", "host", "demand", "stopped",
        "spent_s", "warnings", "profile", "failure", "settings",
    ):  # fmt: skip
        assert name in told


@given(SETTINGS)
def test_arguments_always_have_workers_and_window(setting: Setting) -> None:
    found = data.arguments(setting)
    assert found["num_workers"] == setting.workers
    assert ("prefetch_factor" in found) == (setting.workers > 0)
    ast.parse(call(setting, 4))


@given(SETTINGS, SETTINGS, st.floats(0, 1e12), st.none() | st.integers(1, 99), st.text(max_size=20))
def test_a_record_is_read_as_it_was_written(
    one: Setting, two: Setting, number: float, size: int | None, text: str
) -> None:
    written = tuning(
        one, baseline=two, batch_size=size, verdict=text, spent_s=number, points=(point(two, number, 1),)
    )
    again = data.from_json(json.loads(data.render(written)))
    assert again == written
    assert screen.render(again) == screen.render(written)


def test_numbers_that_are_none_become_null() -> None:
    told = json.loads(data.render(tuning(curve={"knee": float("inf"), "law": (1, float("nan"))})))
    assert told["curve"] == {"knee": None, "law": [1, None]}


@pytest.mark.parametrize(
    "damage",
    [
        {"format": "stoker-run"}, {"version": None}, {"version": 2}, {"settings": {}}, {"points": None}, {"points": [{}]},
        {"gain": {"middle": "much"}}, {"verdict": 3}, {"edit": {"after": "", "kind": "magic"}}, {"demand": None},
        {"settings": {"baseline": {"workers": -1}, "recommended": {}}}, {"work": 3},
    ],
    ids=lambda damage: "-".join(damage),
)  # fmt: skip
def test_a_damaged_record_is_refused_in_words(tmp_path: Path, damage: dict[str, Any]) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps({**data.as_json(tuning()), **damage}))
    with pytest.raises(RecordError, match=r"tuning\.json"):
        data.read(path)


def test_files_that_are_no_record_are_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    with pytest.raises(RecordError, match="cannot read"):
        data.read(path)
    for content in (b"", b"\xff\xfe", b"[" * 100_000, b"[1]"):
        path.write_bytes(content)
        with pytest.raises(RecordError, match=r"tuning\.json"):
            data.read(path)


def test_markdown_has_the_table_and_the_edit() -> None:
    text = markdown.render(tuning(verdict="Take `3` <b>workers</b> | now"))
    assert text.startswith(r"**Take \`3\` \<b\>workers\</b\> \| now**")
    assert "| 3 workers × 4 (take) | 12.6 ms |" in text
    assert "```python\nnum_workers=0  →  num_workers=3" in text
    assert tuning()._repr_markdown_().startswith("**Take 3 workers")
    assert str(tuning()).startswith("Tuned")
    assert repr(tuning()).startswith("<Tuning of train.py:loader: Take 3")


def test_only_what_changes_is_typed() -> None:
    loader = target(Setting(2, 4, engine="stoker"))
    [only] = edits(loader, Setting(3, 4))
    assert (only.before, only.after, only.site, only.kind) == (
        "num_workers=2",
        "num_workers=3",
        "train.py:3",
        "argument",
    )
    assert edits(loader, loader.setting) == ()


def test_a_loader_that_chooses_itself_has_its_number_from_the_profile() -> None:
    chosen = target(
        Setting(2),
        written=(("num_workers", "'auto'"), ("prefetch_factor", "None"), ("persistent_workers", "True")),
    )
    assert edits(chosen, BEST) == ()
    assert 'Nothing to type: num_workers="auto" begins with this' in screen.render(
        tuning(edits=(), edit=None)
    )
    assert "stoker.DataLoader(dataset" in screen.render(tuning(edits=(), edit=None, profile=""))
    [only] = edits(chosen, Setting(8, 2, executor="thread"))
    assert only.after == 'executor="thread"'


def test_what_the_new_setting_does_not_have_is_taken_out() -> None:
    changes = edits(target(OTHER), Setting(4, 2))
    assert [each.kind for each in changes] == ["argument", "argument"]
    assert changes[0].after == "num_workers=4"
    assert changes[1].after == ""
    gone = str(changes[1].before)
    for name in (
        "pin_memory=True",
        "multiprocessing_context='spawn'",
        "executor='thread'",
        "split_batches=True",
    ):
        assert name in gone
    none = edits(target(Setting(4, 2, engine="torch", start_method="spawn")), Setting(0, engine="torch"))
    assert [each.after for each in none] == ["num_workers=0"]  # the rest goes with it


def test_a_dataset_gets_the_call_to_write() -> None:
    [only] = edits(target(loader=False), BEST)
    assert only.kind == "shown"
    assert only.after == (
        "stoker.DataLoader(dataset, batch_size=64, num_workers=3, prefetch_factor=4, persistent_workers=True)"
    )
    assert 'executor="thread"' in call(OTHER, 8)
    assert 'executor="thread"' in edits(target(), OTHER)[0].after
    assert call(NOW, None) == "torch.utils.data.DataLoader(dataset, num_workers=0)"


def test_a_tuning_leaves_its_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_PROFILES", str(tmp_path / "kept"))
    done = with_saved_profile(tuning(profile=""), target())
    profile = Profile.from_dict(json.loads(Path(done.profile).read_text()))
    assert (profile.dataset, profile.batch_size, profile.machine) == ("0" * 32, 64, machine_key())
    assert asdict(profile.setting) == asdict(BEST)
    assert (profile.regime, profile.step_ns, profile.interval_ns, profile.cpus) == (
        "compute",
        12_000_000,
        12.5e6,
        4,
    )
    assert profile.reason.startswith("Samples are computed")
    assert profile.plain is None
    threads = with_saved_profile(tuning(OTHER, profile=""), target())
    assert Profile.from_dict(json.loads(Path(threads.profile).read_text())).plain == BEST
    alone = (point(NOW, 20, 1.0), point(BEST, 0, 0, failure="it hangs", blocks=0))
    for nothing in (
        tuning(profile="", failure="no"),
        tuning(profile="", stopped="interrupted", points=()),
        tuning(profile="", points=alone),
    ):
        assert with_saved_profile(nothing, target()) == nothing
    monkeypatch.setenv("STOKER_PROFILES", "off")
    refused = with_saved_profile(tuning(profile=""), target())
    assert refused == replace(tuning(profile=""), warnings=refused.warnings)
    assert "was not saved" in refused.warnings[-1]


def test_times_and_ratios_of_a_table_agree() -> None:
    """A setting that was only in slow rounds is told as it compares, not as it was measured."""
    late = replace(tuning().points[1], interval_ns=Interval(40e6, 39e6, 41e6))
    told = tuning(points=(tuning().points[0], late))
    assert words.interval_ns(late, told) == pytest.approx(0.59 * 21.3e6)
    assert words.shown_points(told)[0] is late


class _Tags(HTMLParser):
    """Balanced, and nothing that loads or runs."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "style", "iframe")
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("changes", [{}, IDLE, {"failure": "it was <stopped>"}])
def test_a_notebook_shows_it_whole_and_escaped(changes: dict[str, Any]) -> None:
    answer = tuning(**{**changes, "target": "train.py:<loader>"})
    shown = answer._repr_html_()
    assert shown == html.render(answer)
    tags = _Tags()
    tags.feed(shown)
    tags.close()
    assert tags.open == []
    assert "train.py:&lt;loader&gt;" in shown
    assert "http" not in shown
    assert answer.verdict in shown
    for each in (*answer.why, *answer.warnings, *screen.typed(answer)):
        assert escape(each) in shown
    assert shown.count("<tr ") == (len(words.shown_points(answer)) + 1 if answer.points else 0)
    if answer.failure:
        assert "it was &lt;stopped&gt;" in shown


@pytest.mark.parametrize(
    "changed",
    [
        {"demand": {"step_ns": "12"}},
        {"demand": {"step_ns": 1, "burst": "2"}},
        {"spent_s": 10**400},
        {"edits": [None]},
        {"work": {"rows": 64, "batch_ns": [None], "cpu_ns": []}},
        {"gain": {"middle": float("nan"), "low": 0, "high": 0}},
        {"starts": {"fork": "soon"}},
    ],
)
def test_numbers_that_no_tuning_has_are_refused_in_words(tmp_path: Path, changed: dict[str, Any]) -> None:
    """They were read, and ended in a traceback when the screen was drawn."""
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps({**json.loads(data.render(tuning())), **changed}))
    with pytest.raises(RecordError, match="this tuning is damaged: "):
        data.read(path)
