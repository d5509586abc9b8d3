"""Lines of ``stoker top``: all that is known, nothing that is not."""

from __future__ import annotations

import pytest

from stoker._tools.top.lines import board, live_line, rate, seconds, share
from stoker._tools.top.live import LoaderLive, WorkerLive


def told(**changed: object) -> LoaderLive:
    loader = LoaderLive(4711, "train.py --lr 0.1", recorded=True)
    for name, value in changed.items():
        setattr(loader, name, value)
    return loader


def texts(loader: LoaderLive, most_workers: int | None = None) -> list[str]:
    return [line.text for line in board(loader, most_workers)]


def test_the_live_line_has_it_all() -> None:
    loader = told(
        stall=0.031, ready=0.94, num_workers=8, busy=0.71, window=16, depth=6, cpu=0.6, runq=0.1, off=0.3, rate=1230.0,
        cause="io",
    )  # fmt: skip
    assert live_line(loader) == (
        "stall 3.1 % | ready .94 | 8 workers 71 % busy | window 6/16 | cpu .6 runq .1 off .3 | 1.2k/s | cause: I/O"
    )


def test_what_is_not_known_is_left_out() -> None:
    assert live_line(told()) == "no batch yet"
    assert live_line(told(stall=0.001, ready=1.0)) == "stall 0.1 % | ready 1.00 | data keeps up"
    assert live_line(told(idle_s=90.0, num_workers=1)) == "no batch asked for since 90 s | 1 worker"


def test_a_long_wait_names_the_worker_the_index_and_the_time() -> None:
    workers = [
        WorkerLive(0, 50, "idle"),
        WorkerLive(1, 51, "fetch", index=17, batch=3, row=1, for_s=12.2, awaited=True),
    ]
    lines = texts(told(waiting_s=12.0, workers=workers))
    assert "  waiting for 12 s: worker 1 is on index 17 of batch 3 (fetch), which it began 12 s ago" in lines
    assert [line.split()[:2] for line in lines if line.startswith("  worker ")] == [
        ["worker", "1"],
        ["worker", "0"],
    ]
    assert "  workers: 1 fetch, 1 idle" in lines


def test_nobody_at_work_is_said() -> None:
    assert "  waiting for 3.0 s: no worker is at work" in texts(
        told(waiting_s=3.0, workers=[WorkerLive(0, 50, "idle")])
    )


def test_short_waits_are_no_alarm() -> None:
    assert not [line for line in texts(told(waiting_s=0.2)) if "waiting" in line]


def test_the_worst_of_many_workers_are_shown_and_the_rest_is_counted() -> None:
    workers = [
        WorkerLive(number, 100 + number, "fetch", batch=number, row=0, for_s=number / 10)
        for number in range(190)
    ]
    workers += [WorkerLive(190, 290, "collate", batch=190, for_s=50.0), WorkerLive(191, 291, "idle")]
    lines = texts(told(workers=workers), 3)
    assert [line.split()[1] for line in lines if line.startswith("  worker ")] == ["190", "189", "188"]
    assert lines[-1] == "  and 189 more: 188 fetch, 1 idle"
    assert len(texts(told(workers=workers))) > 192


def test_what_went_wrong_and_why() -> None:
    loader = told(restarts=1, stalls=0, bad_samples=3, event_ago_s=12.0)
    loader.event = {"at_ns": 1, "kind": "bad_sample", "reason": "index 3 is None\nmore"}
    loader.cause, loader.causes = "starved", {"starved": 0.7, "head_of_line": 0.295, "io": 0.005}
    loader.blame = [{"stage": "hand_over", "worker": 2, "cause": "starved", "ns": 3_000_000_000}]
    loader.slowest = [{"index": 9, "ns": 2_000_000_000, "worker": 0, "blamed_ns": 0}]
    lines = texts(loader)
    assert "  1 restart, 3 bad samples" in lines
    assert "  12 s ago, bad sample: index 3 is None" in lines
    assert "  blame: CPU starved 70 %, head of line 30 %" in lines
    assert "  most of the run's wait: hand-over in worker 2, 3.0 s" in lines
    assert "  slowest: index 9 2.0 s" in lines


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (0.312, "0.31"),
        (4.2, "4.2"),
        (9.97, "10"),
        (830, "830"),
        (1230, "1.2k"),
        (56_000, "56k"),
    ],
)
def test_rates(number: float, text: str) -> None:
    assert rate(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.00002, "20 µs"),
        (0.003, "3 ms"),
        (0.12, "0.1 s"),
        (9.99, "10 s"),
        (99.6, "1.7 min"),
        (7560, "2.1 h"),
    ],
)
def test_durations(number: float, text: str) -> None:
    assert seconds(number) == text


@pytest.mark.parametrize(("part", "text"), [(0.0, ".0"), (0.61, ".6"), (1.0, "1.0"), (0.96, "1.0")])
def test_shares(part: float, text: str) -> None:
    assert share(part) == text
