"""Local ranks agree by a page: several processes, without one waiting for the other."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker._host.private_files import private_folder
from stoker._runtime.autoscale.ranks import rank_file
from stoker._runtime.autoscale.ranks.rank_consensus import MOST_APART, AgreedWorkers, RankConsensus
from stoker._runtime.autoscale.ranks.rank_file import RankRow
from stoker._runtime.autoscale.ranks.rank_report import RankReport
from stoker._runtime.autoscale.types import Observation

WINDOW = Observation(
    steps=100,
    wall_ns=2_000_000_000,
    wait_ns=100_000_000,
    workers=2,
    window=4,
    busy=0.9,
    cpu_ns=1e6,
    off_ns=1e6,
)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    tmp_path.chmod(0o700)
    return {
        "LOCAL_WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "host",
        "MASTER_PORT": "29500",
        "XDG_RUNTIME_DIR": str(tmp_path),
    }


@pytest.fixture
def rank(environ: dict[str, str]) -> Iterator[Callable[..., RankConsensus]]:
    """Makes consensuses of this process, as if it were several."""
    made: list[RankConsensus] = []

    def join(number: int, **more: str) -> RankConsensus:
        consensus = RankConsensus.join({**environ, "LOCAL_RANK": str(number), **more}, "train")
        assert consensus is not None
        made.append(consensus)
        return consensus

    yield join
    for each in made:
        each.close()


class Child:
    """A forked rank that does one thing after the other, when it is told to: a byte in, a byte out."""

    def __init__(self, body: Callable[[Callable[[], None]], Any]) -> None:
        theirs, self._go = os.pipe()
        self._done, ours = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._go)
            os.close(self._done)

            def pause() -> None:
                os.write(ours, b".")
                if not os.read(theirs, 1):
                    os._exit(0)

            code = 1
            try:
                body(pause)
                code = 0
            finally:
                os._exit(code)
        os.close(theirs)
        os.close(ours)

    def wait(self) -> None:
        assert os.read(self._done, 1) == b"."

    def go(self) -> None:
        os.write(self._go, b".")

    def end(self, how: int | None = None) -> int:
        if how is not None:
            os.kill(self.pid, how)
        os.close(self._go)
        _, status = os.waitpid(self.pid, 0)
        os.close(self._done)
        return os.waitstatus_to_exitcode(status)


def pages(environ: dict[str, str]) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return os.listdir(Path(environ["XDG_RUNTIME_DIR"], "stoker"))
    return []


@pytest.mark.parametrize(
    "without", [{"LOCAL_WORLD_SIZE": "1"}, {"LOCAL_RANK": ""}, {"MASTER_PORT": ""}, {"LOCAL_RANK": "9"}]
)
def test_no_page_where_the_environment_tells_of_no_ranks(
    environ: dict[str, str], without: dict[str, str]
) -> None:
    assert RankConsensus.join({**environ, **without}, "train") is None
    assert pages(environ) == []


def test_the_lowest_rank_leads_and_the_others_follow(rank: Callable[..., RankConsensus]) -> None:
    first, second = rank(0), rank(1)
    assert first.leads
    assert not second.leads
    assert first.target() is second.target() is None
    first.publish(4)
    assert first.target() == second.target() == AgreedWorkers(1, 4)
    first.publish(6, 24, split=True)
    late = rank(2)
    assert [each.target() for each in (first, second, late)] == [AgreedWorkers(2, 6, 24, True)] * 3


def test_the_leader_knows_the_rank_that_waits_most(rank: Callable[..., RankConsensus]) -> None:
    first, second, third = rank(0), rank(1), rank(2)
    second.report(replace(WINDOW, wait_ns=800_000_000, busy=0.97))
    third.report(WINDOW)
    whole = first.combined(WINDOW)
    assert (whole.stall, whole.busy, whole.warm_up) == (0.4, 0.97, False)


def test_ranks_that_have_not_followed_yet_are_waited_for_but_not_for_ever(
    rank: Callable[..., RankConsensus],
) -> None:
    first, second = rank(0), rank(1)
    second.report(replace(WINDOW, workers=1))
    waited = [first.combined(WINDOW).warm_up for _ in range(MOST_APART + 1)]
    assert waited == [True] * MOST_APART + [False]


def test_a_rank_that_leaves_hands_the_lead_over(
    rank: Callable[..., RankConsensus], environ: dict[str, str]
) -> None:
    first, second = rank(0), rank(1)
    first.publish(3)
    assert second.target() == AgreedWorkers(1, 3)
    first.close()
    assert second.leads
    assert second.target() is None  # it has followed already; the next one is its own
    second.publish(5)
    late = rank(0)
    assert late.leads
    assert late.target() == second.target() == AgreedWorkers(2, 5)
    late.publish(7)
    assert second.target() == AgreedWorkers(3, 7)


def test_killed_ranks_block_nobody_and_their_word_is_gone(
    environ: dict[str, str], rank: Callable[..., RankConsensus]
) -> None:
    def body(pause: Callable[[], None]) -> None:
        leader = RankConsensus.join(environ, "train")
        assert leader is not None
        assert leader.leads
        leader.report(replace(WINDOW, wait_ns=WINDOW.wall_ns))
        leader.publish(9)
        pause()

    child = Child(body)
    child.wait()
    second = rank(1)
    assert not second.leads
    assert second.target() == AgreedWorkers(1, 9)
    assert second.combined(WINDOW).stall == 1.0
    assert child.end(signal.SIGKILL) == -signal.SIGKILL
    assert second.leads
    assert second.target() is None
    assert second.combined(WINDOW) == WINDOW
    second.publish(4)
    assert second.target() == AgreedWorkers(2, 4)


def test_processes_agree(environ: dict[str, str], rank: Callable[..., RankConsensus]) -> None:
    def body(pause: Callable[[], None]) -> None:
        follower = RankConsensus.join({**environ, "LOCAL_RANK": "2"}, "train")
        assert follower is not None
        follower.report(WINDOW)
        pause()
        assert follower.target() == AgreedWorkers(1, 5)
        follower.close()
        pause()

    leader = rank(0)
    child = Child(body)
    child.wait()
    assert leader.combined(WINDOW).stall == WINDOW.stall
    leader.publish(5)
    child.go()
    child.wait()
    assert child.end() == 0
    leader.close()
    assert pages(environ) == []


def test_a_restarted_job_reads_nothing_of_the_old_one(
    environ: dict[str, str], rank: Callable[..., RankConsensus]
) -> None:
    def body(pause: Callable[[], None]) -> None:
        for number in range(3):
            old = RankConsensus.join({**environ, "LOCAL_RANK": str(number)}, "train")
            assert old is not None
            old.publish(64)
        pause()

    child = Child(body)
    child.wait()
    child.end(signal.SIGKILL)
    again = rank(1)  # rank 0 is not there yet
    assert again.leads
    assert again.target() is None
    assert again.combined(WINDOW) == WINDOW
    elastic = rank(0, TORCHELASTIC_RESTART_COUNT="1")
    again.publish(2)
    assert elastic.target() is None


def test_whoever_comes_later_has_the_seat(
    rank: Callable[..., RankConsensus], caplog: pytest.LogCaptureFixture
) -> None:
    old = rank(0)
    old.publish(9)
    new = rank(0)
    assert new.leads
    assert new.target() is None
    old.publish(11)
    assert not old.leads
    assert old.target() is None
    assert new.target() is None
    assert "another process has this rank's row" in caplog.text
    old.close()
    new.publish(2)
    assert new.target() == AgreedWorkers(1, 2)


def test_loaders_of_one_process_are_told_apart(
    environ: dict[str, str], rank: Callable[..., RankConsensus]
) -> None:
    train = rank(0)
    other = RankConsensus.join(environ, "validate")
    assert other is not None
    train.publish(8)
    assert other.target() is None
    other.close()


def test_pages_of_dead_jobs_are_taken_away(
    environ: dict[str, str], rank: Callable[..., RankConsensus]
) -> None:
    def body(pause: Callable[[], None]) -> None:
        RankConsensus.join({**environ, "MASTER_PORT": "1"}, "train")
        pause()

    child = Child(body)
    child.wait()
    living = rank(0)
    assert len(pages(environ)) == 2
    child.end(signal.SIGKILL)
    other = rank(0, MASTER_PORT="2")
    assert len(pages(environ)) == 2
    other.close()
    living.close()
    assert pages(environ) == []


def test_a_page_of_another_pid_namespace_is_left_alone_for_a_day(
    environ: dict[str, str], rank: Callable[..., RankConsensus]
) -> None:
    """Containers may share a folder: whether a rank in another one is alive cannot be seen from here."""
    place = private_folder(environ)
    elsewhere = place / "ranks-0-elsewhere"
    os.close(rank_file.take_row(elsewhere, 0, RankRow(2**22 + 1, 1, 1, 0)))
    rank(0)
    assert elsewhere.exists()
    os.utime(elsewhere, (1, 1))
    rank(1)
    assert not elsewhere.exists()


def test_in_a_forked_child_it_is_inert(rank: Callable[..., RankConsensus]) -> None:
    consensus = rank(0)
    consensus.publish(3)

    def body(pause: Callable[[], None]) -> None:
        assert not consensus.leads
        consensus.publish(5)
        consensus.report(WINDOW)
        assert consensus.target() is None
        consensus.close()
        pause()

    child = Child(body)
    child.wait()
    child.end()
    assert consensus.target() == AgreedWorkers(1, 3)


def test_a_row_that_is_half_written_is_not_believed() -> None:
    seat = RankRow(1, 2, 3, 4, 5, 6, 7, 1, RankReport.of(WINDOW))
    row = seat.pack()
    assert RankRow.unpack(row) == seat
    assert len(row) <= rank_file.ROW_BYTES
    newer = seat._replace(sequence=6, workers=60).pack()
    for cut in range(8, len(row), 8):
        mixed = newer[:cut] + row[cut:]
        assert mixed in (row, newer) or RankRow.unpack(mixed) is None


def test_folders_and_files_of_others_are_not_used(
    environ: dict[str, str], rank: Callable[..., RankConsensus], tmp_path: Path
) -> None:
    place = tmp_path / "stoker"
    place.mkdir(mode=0o755)
    place.chmod(0o755)
    assert RankConsensus.join(environ, "train") is None
    place.chmod(0o700)
    which = rank_file.name_of("job", "key")
    (place / which).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"."):
        rank_file.open_file(place / which)
    (place / which).unlink()
    (place / which).write_bytes(b"")
    (place / which).chmod(0o644)
    with pytest.raises(PermissionError):
        rank_file.open_file(place / which)


def test_a_page_that_is_cut_short_stops_nobody(
    environ: dict[str, str], rank: Callable[..., RankConsensus], tmp_path: Path
) -> None:
    first, second = rank(0), rank(1)
    first.publish(3)
    (page,) = (tmp_path / "stoker").iterdir()
    os.truncate(page, 100)
    assert first.target() == AgreedWorkers(1, 3)
    assert second.target() is None
    second.report(WINDOW)
    first.publish(4)
    assert second.target() == AgreedWorkers(2, 4)
