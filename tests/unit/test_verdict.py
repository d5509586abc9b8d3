"""What a run is told, and how it looks."""

from __future__ import annotations

import io
import json

import pytest

from stoker._record.schema import CAUSES, Event, SlowestSample
from stoker._tools.render import terminal
from stoker._tools.report.verdict import screen, table
from stoker._tools.report.verdict.codes import CODES, VerdictFinding
from stoker._tools.report.verdict.verdict import Verdict, judge
from tests.unit.records import MS, SECOND, loader, machine, run, steps, worker

IO = {("fetch", 0, "io"): 0.9, ("start", -1, "start_up"): 0.1}

CROWD = {"busy_cpu_ns": 3 * SECOND, "own_cpu_ns": SECOND}
"""Others use a CPU."""


def _first(*loaders, **changed) -> VerdictFinding:
    return judge(run(*loaders, **changed)).loaders[0].findings[0]


def test_samples_that_wait_get_more_workers_with_the_edit_and_the_gain():
    verdict = judge(run(loader(IO)))
    assert verdict.headline == (
        "The training loop waits 50% of the time for loader of Images (train.py:31): "
        "samples wait for storage, network, a lock or a sleep (io)."
    )
    found = verdict.loaders[0].findings[0]
    assert found.code == "more-workers"
    assert str(found.edit) == "num_workers=2  →  num_workers=5   in train.py:31"
    assert found.gain is not None
    assert found.gain.share == pytest.approx(0.45)  # all of the wait but for the start
    assert "40 ms per batch over 5 workers" in found.gain.how


def test_what_several_workers_wait_for_may_be_one_lock_so_their_gain_is_a_bound():
    found = _first(loader(IO))
    assert found.gain is not None
    assert found.gain.at_most
    alone = _first(loader(IO, num_workers=1, workers=[worker(0, busy_s=2.0)]))
    assert alone.gain is not None
    assert not alone.gain.at_most
    assert alone.evidence.startswith("1 worker takes ")


def test_a_worker_that_is_slower_than_all_others_is_named_and_few_slow_samples_are_not_taken_for_one():
    waits_s = {("fetch", 0, "head_of_line"): 1.0, ("fetch", 1, "io"): 0.1}
    crew = [worker(0, busy_s=1.9), worker(1, busy_s=0.2), worker(2, busy_s=0.3)]
    found = _first(loader(waits_s, workers=crew))
    assert found.code == "slow-worker"
    assert "worker 0 takes 6.3 times as long" in found.evidence
    assert found.gain is not None
    assert found.gain.share == pytest.approx(1.0 / 2.1)
    slow = [SlowestSample(place, 800 * MS, 0, 0, place, 0, 400 * MS) for place in range(2)]
    assert _first(loader(waits_s, workers=crew, slowest=slow)).code == "slow-samples"
    assert _first(loader({("fetch", 1, "io"): 1.0}, workers=crew)).code != "slow-worker"


def test_without_workers_no_worker_is_spoken_of():
    parent = worker(-1, busy_s=1.0, cpu=0.2, runq=0.8)
    waits_s = {("fetch", -1, "starved"): 0.8, ("fetch", -1, "compute"): 0.2}
    starved = loader(
        waits_s,
        num_workers=0,
        executor="inline",
        workers=[parent],
        slowest=[SlowestSample(7, 1190 * MS, -1, 0, 0, 0)],
        load=CROWD,
    )
    text = screen.render(judge(run(starved, machine=machine(usable=2))))
    assert "the training process gets no CPU" in text.replace("\n          ", " ")
    assert "num_workers=0  →  num_workers=2" in text
    assert "7 (1.19 s)" in text
    assert "ready when asked for" not in text
    busy = loader(
        {("fetch", -1, "compute"): 1.0}, num_workers=0, executor="inline", workers=[worker(-1, busy_s=1.0)]
    )
    assert "the training process makes every sample itself" in judge(run(busy)).headline
    assert "orkers" not in judge(run(busy)).headline.replace("without workers", "")
    late = loader(
        {("start", -1, "start_up"): 1.0}, num_workers=0, executor="inline", workers=[], totals={"epochs": 9}
    )
    assert judge(run(late)).headline.endswith("starting an epoch takes long (start-up).")


def test_workers_that_died_are_what_was_waited_for():
    dead = loader({("fetch", 0, "unknown"): 1.0}, totals={"worker_deaths": 3})
    verdict = judge(run(dead))
    assert "3 workers died" in verdict.headline
    assert [each.code for each in verdict.loaders[0].findings] == ["dying-workers"]
    untold = judge(run(loader({("fetch", 0, "unknown"): 1.0}))).loaders[0].findings[0]
    assert "stoker run" not in untold.advice


def test_the_function_to_make_cheaper_is_where_workers_spend_their_time():
    """torch's loop may wait in ``open`` for workers that are busy in the collate function."""
    table = steps(20)
    table["fetched_ns"] = [each + MS for each in table["received_ns"]]
    busy = [worker(place, busy_s=2.0, cpu=1.0) for place in range(2)]
    slow = loader({("open", -1, "compute"): 1.0}, workers=busy, engine="torch", steps=table)
    found = judge(run(slow, machine=machine(usable=2))).loaders[0].findings[0]
    assert found.advice.startswith("Make collate_fn cheaper")


def test_recording_is_never_what_to_look_at():
    waits_s = {("record", -1, "parent"): 0.6, ("open", -1, "parent"): 0.3, ("fetch", 0, "starved"): 0.5}
    verdict = judge(run(loader(waits_s, load={"loop_cpu_ns": 10, "loop_runq_ns": 90}))).loaders[0]
    assert verdict.causes.stages("starved").keys() == {"fetch", "open"}
    assert "record" not in verdict.why[0]
    assert verdict.causes.share("parent", "starved") == pytest.approx(1.0)


def test_workers_that_would_save_nothing_are_not_advised():
    waits_s = {("fetch", 0, "starved"): 0.9, ("fetch", 0, "compute"): 0.001, ("fetch", 0, "io"): 0.1}
    codes = [
        each.code
        for each in judge(run(loader(waits_s, executor="inline", num_workers=0, load=CROWD)))
        .loaders[0]
        .findings
    ]
    assert codes == ["cpu-neighbours", "more-workers"]
    waits_s[("fetch", 0, "io")] = 0.001
    codes = [
        each.code
        for each in judge(run(loader(waits_s, executor="inline", num_workers=0, load=CROWD)))
        .loaders[0]
        .findings
    ]
    assert codes == ["cpu-neighbours"]


def test_samples_of_a_stream_have_no_index_to_show():
    stream = [SlowestSample(None, 8 * MS, 1, 0, 3, 2)]
    assert "Slowest" not in screen.render(judge(run(loader(IO, slowest=stream))))


def test_why_and_the_table_under_it_say_the_same():
    waits_s = {(stage, 0, "io"): 0.1449 for stage in ("fetch", "collate", "hand_over", "queue")}
    waits_s |= {(stage, 0, "compute"): 0.105 for stage in ("fetch", "collate", "hand_over", "queue")}
    text = screen.render(judge(run(loader(waits_s))))
    assert "Of all waiting, 58% is io" in text
    assert next(line for line in text.splitlines() if line.split()[:1] == ["all"]).split()[1] == "58"


def test_a_gain_that_the_numbers_do_not_support_is_not_given():
    lazy = [worker(0, busy_s=0.2), worker(1, busy_s=0.2), worker(2, busy_s=2.0, cpu=0.0)]
    found = _first(loader(IO, workers=lazy, totals={"step_ns": 700 * MS}))
    assert found.gain is not None
    assert found.gain.share is None
    assert str(found.gain) == "gain not known"


def test_compute_goes_up_to_the_cpus_and_then_has_to_become_cheaper():
    waits_s = {("fetch", 0, "compute"): 1.0}
    busy = [worker(place, busy_s=2.0, cpu=1.0) for place in range(2)]
    found = _first(loader(waits_s, workers=busy))
    assert str(found.edit) == "num_workers=2  →  num_workers=5   in train.py:31"
    full = judge(run(loader(waits_s, workers=busy), machine=machine(usable=2))).loaders[0].findings
    assert [each.code for each in full] == ["cheaper-samples"]
    assert full[0].gain is not None
    assert full[0].gain.at_most


def test_a_training_loop_that_uses_little_of_a_cpu_leaves_it_to_another_worker():
    busy = [worker(0, busy_s=1.7, cpu=1.0)]
    load = {"parent_cpu_ns": 100 * MS, "busy_cpu_ns": 2 * SECOND, "own_cpu_ns": 1800 * MS}
    one = loader({("fetch", 0, "compute"): 0.7}, num_workers=1, workers=busy, load=load)
    found = judge(run(one, machine=machine(cpus=2, usable=2))).loaders[0].findings[0]
    assert str(found.edit).startswith("num_workers=1  →  num_workers=2")
    assert found.gain is not None
    assert found.gain.share == pytest.approx(0.41, abs=0.01)


def test_cpus_that_others_use_are_shared_with_them():
    busy = [worker(place, busy_s=2.0, cpu=1.0) for place in range(2)]
    crowd = {"busy_cpu_ns": 10 * SECOND, "own_cpu_ns": 4 * SECOND}
    found = judge(run(loader({("fetch", 0, "compute"): 1.0}, workers=busy, load=crowd))).loaders[0].findings
    assert found[0].code == "more-workers"
    crowd["busy_cpu_ns"] = 18 * SECOND
    verdict = judge(run(loader({("fetch", 0, "compute"): 1.0}, workers=busy, load=crowd)))
    less = verdict.loaders[0].findings[0]
    assert less.code == "more-workers"  # the scheduler gives every worker its turn, beside others too
    assert less.gain is not None
    assert found[0].gain is not None
    assert 0 < (less.gain.share or 0) < (found[0].gain.share or 0)
    assert any("Other processes used 7.0 of 8 CPUs" in each for each in verdict.notes)
    assert "Other processes used 7.0" in screen.render(verdict)


def test_the_training_step_needs_a_cpu_as_well():
    waits_s = {("fetch", -1, "compute"): 2.0}
    alone = {"num_workers": 0, "executor": "inline", "workers": [worker(-1, busy_s=2.0, cpu=1.0)]}
    idle = _first(
        loader(waits_s, step_s=1.0, load={"parent_cpu_ns": 2 * SECOND}, **alone), machine=machine(usable=2)
    )
    busy = _first(
        loader(waits_s, step_s=1.0, load={"parent_cpu_ns": 3 * SECOND}, **alone), machine=machine(usable=2)
    )
    assert idle.code == busy.code == "more-workers"
    assert idle.gain is not None
    assert busy.gain is not None
    # 20 ms of a batch and 10 ms of a step on 2 CPUs: one every 15 ms, where without the step's CPU it would be 10 ms.
    assert busy.gain.share == pytest.approx(0.5)
    assert idle.gain.share == pytest.approx(2 / 3)


def test_a_small_wait_that_recording_explains_is_no_problem():
    waits_s = {("open", -1, "parent"): 0.036, ("record", -1, "parent"): 0.024}
    assert judge(run(loader(waits_s, step_s=0.94))).headline.startswith("Data is not the problem")
    small = judge(run(loader({("open", -1, "parent"): 0.04}, step_s=0.96)))
    assert "waits 4.0% of the time, little," in small.headline
    advice = small.loaders[0].findings[0].advice
    assert "thousands of Python objects" not in advice  # 0.4 ms a batch
    heavy = judge(run(loader({("open", -1, "parent"): 1.0})))
    assert "thousands of Python objects" in heavy.loaders[0].findings[0].advice


def test_a_run_without_workers_is_not_told_what_workers_compute():
    alone = loader(
        {("fetch", -1, "compute"): 1.0},
        num_workers=0,
        executor="inline",
        workers=[worker(-1, busy_s=1.0, cpu=0.92)],
    )
    found = judge(run(alone)).loaders[0].findings
    cheaper = next(each for each in found if each.code == "cheaper-samples")
    assert cheaper.evidence.startswith("making a batch computes 92% of its time")


def test_without_workers_the_first_thing_is_to_have_some():
    waits_s = {("fetch", -1, "compute"): 1.0}
    found = _first(loader(waits_s, executor="inline", num_workers=0, workers=[]))
    assert str(found.edit) == "num_workers=0  →  num_workers=2   in train.py:31"
    assert found.gain is not None
    assert found.gain.share == pytest.approx(0.5)


def test_workers_that_start_at_every_epoch_are_kept():
    found = _first(loader({("start", -1, "start_up"): 1.0}, totals={"epochs": 5}))
    assert (found.code, str(found.edit)) == (
        "persistent-workers",
        "persistent_workers=False  →  persistent_workers=True   in train.py:31",
    )
    assert found.gain is not None
    assert found.gain.share == pytest.approx(0.4)
    forked = _first(loader({("start", -1, "start_up"): 1.0}))
    assert forked.code == "slow-start"
    assert "fork" not in forked.advice
    spawned = _first(loader({("start", -1, "start_up"): 1.0}, options={"start_method": "spawn"}))
    assert "workers are spawned" in spawned.evidence
    assert "multiprocessing_context='fork'" in spawned.advice


def test_slow_samples_are_named_by_index_with_their_share():
    slow = [
        SlowestSample(4711, 800 * MS, 0, 0, 3, 2, blamed_ns=500 * MS),
        SlowestSample(17, 300 * MS, 1, 0, 9, 1),
    ]
    found = _first(loader({("fetch", 0, "head_of_line"): 1.0}, slowest=slow))
    assert found.code == "slow-samples"
    assert "4711" in found.evidence
    assert "17" not in found.evidence.replace("4711", "")
    assert found.gain is not None
    assert found.gain.share == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("stage", "code"),
    [("plan", "slow-sampler"), ("open", "heavy-batches"), ("pin", "slow-pinning"), ("wake", "late-wake")],
)
def test_a_slow_parent_is_told_which_part_of_it(stage, code):
    assert _first(loader({(stage, -1, "parent"): 1.0})).code == code


def test_torchs_loader_may_be_exchanged_and_no_gain_is_promised_where_there_is_none():
    codes = {}
    for cause in ("io", "head_of_line"):
        found = judge(run(loader({("fetch", 0, cause): 1.0}, engine="torch"))).loaders[0].findings
        (codes[cause],) = [each for each in found if each.code == "stoker-loader"]
    assert codes["io"].gain is not None
    assert codes["io"].gain.share is None
    assert codes["head_of_line"].gain is not None
    assert codes["head_of_line"].gain.share == pytest.approx(0.5)


def test_threads_that_slow_the_steps_are_told_although_nobody_waits():
    workers = [worker(place, cpu=0.3) for place in range(3)]
    verdict = judge(run(loader({("wake", -1, "parent"): 0.005}, executor="thread", workers=workers)))
    assert "shares Python's lock" in verdict.headline
    assert [each.code for each in verdict.loaders[0].findings] == ["use-processes", "not-data"]
    started = judge(run(loader({("start", -1, "start_up"): 0.5}, executor="thread", workers=workers)))
    assert [each.code for each in started.loaders[0].findings][:2] == ["use-processes", "slow-start"]


def test_the_loader_that_costs_most_leads():
    small, large = loader({("fetch", 0, "io"): 0.2}, name="valid"), loader(IO, name="train")
    verdict = judge(run(small, large))
    assert [each.name for each in verdict.loaders] == ["train", "valid"]
    assert "train" in verdict.headline
    assert "Also: The training loop waits 17% of the time for valid" in " ".join(
        screen.render(verdict).split()
    )


def test_money_and_energy_of_the_idle_share():
    verdict = judge(run(loader(IO)), price_per_hour=2.0, watts=400.0)
    assert verdict.cost is not None
    assert verdict.cost.money_per_month == pytest.approx(730.0)
    assert verdict.cost.kwh_per_month == pytest.approx(146.0)
    assert judge(run(loader(IO))).cost is None


def test_hidden_waits_cost_nothing():
    verdict = judge(run(loader(IO, totals={"hidden_ns": SECOND})), price_per_hour=2.0)
    assert verdict.cost is not None
    assert verdict.cost.money_per_month == 0
    assert "100% of the waiting was hidden" in screen.render(verdict)


def test_copies_that_the_loop_did_not_wait_for_were_hidden():
    waits = {**IO, ("copy", -1, "parent"): 0.25}
    verdict = judge(run(loader(waits, totals={"copied_ns": SECOND})))
    assert "75% of the time of copies to the device was hidden behind the loop" in screen.render(verdict)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (run(), "No DataLoader delivered a batch"),
        (run(loader(IO), exit="SIGKILL", ended=False), "The script ended with SIGKILL"),
        (run(loader(IO), exit=None, ended=False), "before the run ended"),
        (run(loader(IO), loader(step_s=0.0, totals={"steps": 0})), "1 of 2 loaders delivered no batch"),
        (run(loader({("fetch", 0, "io"): 0.005})), "Data is not the problem"),
    ],
)
def test_what_has_to_be_known_of_the_run(record, said):
    assert said in screen.render(judge(record))


def _busy(cause: str) -> Verdict:
    """A verdict with everything in it."""
    waits_s = {("fetch", 0, cause): 1.0}
    waits_s |= {
        (stage, 1, other): 0.02 for stage in ("start", "plan", "queue", "wake", "open") for other in CAUSES
    }
    crowd = [worker(place, cpu=0.2, runq=0.8, threads=8, process_cpu_ns=2 * SECOND) for place in range(8)]
    slow = [
        SlowestSample({"key": "x" * 100}, 800 * MS, place, 0, 3, 2, blamed_ns=100 * MS) for place in range(8)
    ]
    events = [Event(place, "restart", "worker 1 was killed by signal 9 " * 9) for place in range(99)]
    many = [loader(waits_s, name=f"loader number {place} " * 9, slowest=slow, events=events, engine="torch", workers=crowd,
                   totals={"epochs": 3, "hidden_ns": 100 * MS}) for place in range(9)]  # fmt: skip
    return judge(run(*many, exit="1", machine=machine(usable=2)), price_per_hour=1e6, watts=1e6)


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("width", [60, 80, 100])
def test_everything_fits_on_a_screen(cause, width):
    lines = screen.render(_busy(cause), width).splitlines()
    assert len(lines) <= terminal.MOST_LINES
    assert max(map(len, lines)) <= width
    assert [line[:8].strip() for line in lines if line[:8].strip()] == ["Verdict", "Why", "Evidence", "Next"]


def test_a_screen_shows_workers_slow_samples_and_events():
    text = screen.render(
        judge(
            run(
                loader(
                    {("fetch", 0, "head_of_line"): 1.0},
                    slowest=[SlowestSample(4711, 812 * MS, 1, 0, 3, 2)],
                    events=[Event(0, "restart", "worker 1 was killed by signal 9")],
                )
            )
        )
    )
    assert "2 workers 100% busy: cpu 0.10, run-queue 0.00, off 0.90" in text
    assert "4711 (812 ms, worker 1)" in text
    assert "1 × restart; last: worker 1 was killed by signal 9" in text


def test_the_table_adds_up_to_a_hundred():
    cells = table.rows(_busy("io").loaders[0].causes.parts)
    numbers = [[int(cell.rstrip(" %").replace("·", "0")) for cell in line[1:]] for line in cells[1:]]
    assert numbers[-1][-1] == 100
    for line in numbers:
        assert sum(line[:-1]) == line[-1]
    assert [sum(column) for column in zip(*numbers[:-1], strict=True)] == numbers[-1]
    assert table.rows([]) == []
    assert table.percents([1, 1, 1]) == [34, 33, 33]


def test_a_verdict_is_json():
    verdict = _busy("starved")
    data = json.loads(json.dumps(screen.as_json(verdict), default=repr))
    assert (data["format"], data["version"]) == ("stoker-verdict", 1)
    first = data["loaders"][0]
    assert first["causes"]["cause"] == "starved"
    assert {each["code"] for each in first["findings"]} <= set(CODES)
    assert sum(part["ns"] for part in first["causes"]["parts"]) == first["causes"]["wait_ns"]


def test_no_colour_and_no_unicode_where_there_is_none():
    class Narrow(io.StringIO):
        encoding = "ascii"

    plain = Narrow()
    screen.show(judge(run(loader(IO))), plain)
    assert plain.getvalue().isascii()
    assert "\x1b" not in plain.getvalue()
    assert "num_workers=2  ->  num_workers=5" in plain.getvalue()


def test_a_terminal_gets_bold_titles_and_colour_unless_asked_not_to(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured, sober = Terminal(), Terminal()
    screen.show(judge(run(loader(IO))), coloured)
    assert "\x1b[1m" in coloured.getvalue()
    assert "\x1b[31m" in coloured.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    screen.show(judge(run(loader(IO))), sober)
    assert "\x1b[31m" not in sober.getvalue()


def test_workers_behind_one_lock_are_not_told_to_be_more():
    def first(looks, locked):
        return _first(
            loader(
                IO,
                workers=[worker(place, busy_s=2.0, looks=looks, locked_looks=locked) for place in range(2)],
            )
        )

    found = first(12, 8)
    assert found.code == "slow-reads"
    assert "in 67% of 24 looks a worker slept until another process gave up a lock" in found.evidence
    assert first(12, 2).code == "more-workers"
    assert first(2, 2).code == "more-workers", "too few looks"


def test_codes_are_known():
    with pytest.raises(ValueError, match="no such finding"):
        VerdictFinding("not-a-code", "low", "", "")


def test_a_loader_that_chooses_its_workers_itself_is_not_told_how_many():
    record = loader(IO)
    assert _first(record).code == "more-workers"
    record.options["num_workers"].why = "auto: no saved profile"
    assert "more-workers" not in [each.code for each in judge(run(record)).loaders[0].findings]
