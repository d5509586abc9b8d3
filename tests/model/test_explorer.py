"""Every interleaving of tiny worlds: nothing is lost, doubled, out of order, stuck or written by two."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker._runtime.scheduler import scheduler
from stoker._runtime.scheduler.policy import Policy
from tests.model.checked_history import Config
from tests.model.explorer import Counterexample, Exploration, clone, explore, fingerprint, replay
from tests.model.world import Step, World

ONE = Policy(window=1, max_window=1, restarts=0)
TWO = Policy(window=2, max_window=2, restarts=0)
ANY = Policy(window=3, max_window=3, restarts=0, in_order=False)
FOLLOWS = Policy(window=2, max_window=2, restarts=1, prefetch=1)
SPLIT = Policy(window=1, max_window=1, restarts=0, split=True)
BOUND = Policy(window=2, max_window=2, restarts=0, bound=True)
STREAMS = Policy(window=2, max_window=2, restarts=0, bound=True, streams=True)
STREAMS_ONE = Policy(window=1, max_window=1, restarts=0, bound=True, streams=True)
ANY_ORDER_EXCLUDE = Policy(window=2, max_window=2, restarts=0, in_order=False, exclude_killers=True)
EXCLUDE = Policy(window=1, max_window=1, restarts=0, exclude_killers=True)
EXCLUDE_AGAIN = Policy(window=1, max_window=1, restarts=1, exclude_killers=True)
EXCLUDE_SPLIT = Policy(window=1, max_window=1, restarts=0, split=True, exclude_killers=True)
STREAMS_ANY = Policy(window=2, max_window=2, restarts=0, bound=True, streams=True, in_order=False)

WORLDS = {
    "one worker, one kill, one failure": Config(ONE, tickets=4, workers=1, kills=1, fails=1),
    "two workers, one kill": Config(TWO, tickets=3, kills=1),
    "two workers, one kill, batches copied out": Config(TWO, tickets=2, kills=1, hold=0),
    "two kills and one restart": Config(Policy(1, 1, restarts=1), tickets=2, kills=2),
    "any order, no kill": Config(ANY, tickets=4, fails=1),
    "any order, one kill": Config(ANY, tickets=2, kills=1, fails=1),
    "a window that deepens": Config(Policy(1, 3), tickets=4, fails=1),
    "closed early": Config(TWO, tickets=2, kills=1, closes=True),
    "no shared memory": Config(Policy(2, 2, restarts=0, shared_memory=False), tickets=2, kills=1),
    "split, one kill": Config(SPLIT, tickets=2, rows=32, kills=1),
    "split, two kills": Config(SPLIT, tickets=1, rows=32, kills=2),
    "split, one failure, two tickets at once": Config(Policy(2, 2, split=True), tickets=3, rows=32, fails=1),
    "split, closed early": Config(SPLIT, tickets=1, rows=32, kills=1, closes=True),
    "streams": Config(STREAMS, streams=(2, 1), kills=1),
    "streams, one empty, wide window": Config(Policy(3, 3, bound=True, streams=True), streams=(0, 3)),
    "streams in any order": Config(STREAMS_ANY, streams=(1, 0), kills=1),
    "streams, wide window, one kill": Config(
        replace(STREAMS, window=3, max_window=3), streams=(2, 1), kills=1
    ),
    "streams, closed early": Config(STREAMS, streams=(1, 1), closes=True),
    "streams, closed early, one kill": Config(STREAMS_ONE, streams=(1, 0), kills=1, closes=True),
    "bound, map-style": Config(BOUND, tickets=3, kills=1),
    "resized down and up": Config(TWO, tickets=3, resizes=(1, 2)),
    "resized up, one kill": Config(ONE, tickets=2, workers=1, resizes=(2,), kills=1),
    "resized down, one kill": Config(ONE, tickets=2, resizes=(1,), kills=1),
    "resized up and down, the window follows": Config(FOLLOWS, tickets=3, resizes=(3, 1)),
    "resized down and up, the window follows, one kill": Config(
        replace(FOLLOWS, window=1, max_window=1), tickets=2, workers=1, resizes=(2, 1), kills=1
    ),
    "resized while split": Config(SPLIT, tickets=2, rows=32, resizes=(1, 2)),
    "resized, closed early": Config(ONE, tickets=2, workers=1, resizes=(2, 1), closes=True),
    "a row that kills": Config(Policy(2, 2, restarts=0, exclude_killers=True), tickets=3, deadly=((1, 0),)),
    "a row that kills, one restart": Config(EXCLUDE_AGAIN, tickets=2, rows=2, deadly=((0, 1),)),
    "two rows that kill, another order": Config(
        ANY_ORDER_EXCLUDE, tickets=2, rows=3, deadly=((0, 2), (0, 0))
    ),
    "a row that kills and a kill": Config(
        EXCLUDE_AGAIN, tickets=2, workers=1, rows=2, kills=1, deadly=((0, 1),)
    ),
    "kills alone, with sifting": Config(EXCLUDE_AGAIN, tickets=1, rows=2, kills=2),
    "split, a row that kills": Config(EXCLUDE_SPLIT, tickets=1, rows=32, deadly=((0, 20),)),
    "bound, a row that kills": Config(
        Policy(2, 2, restarts=0, bound=True, exclude_killers=True), tickets=3, deadly=((1, 0),)
    ),
    "a row that kills, closed early": Config(EXCLUDE, tickets=2, deadly=((0, 0),), closes=True),
    "one copy ahead, one kill": Config(TWO, tickets=3, kills=1, ahead=1),
    "two copies ahead, one failure": Config(TWO, tickets=3, fails=1, ahead=2),
    "copies ahead, closed early": Config(TWO, tickets=3, closes=True, ahead=2),
    "copies ahead, closed early, one kill": Config(TWO, tickets=2, kills=1, closes=True, ahead=1),
    "copies ahead, split, closed early": Config(SPLIT, tickets=2, rows=32, closes=True, ahead=1),
    "copies ahead in any order": Config(ANY, tickets=3, closes=True, ahead=2),
    "bound is not resized": Config(BOUND, tickets=2, resizes=(1, 3)),
}

DYING_OUT = {
    "plain": Config(TWO, tickets=2, kills=2),
    "split": Config(SPLIT, tickets=1, rows=32, kills=2),
    "streams": Config(STREAMS, streams=(1, 1), kills=1),
    "rows that kill": Config(EXCLUDE, tickets=2, rows=2, deadly=((0, 0), (0, 1), (1, 0))),
}


@pytest.mark.parametrize("config", WORLDS.values(), ids=WORLDS.keys())
def test_every_interleaving_ends_well(config: Config) -> None:
    found = explore(config)
    assert isinstance(found, Exploration), found
    assert found.ends > 0


@pytest.mark.parametrize("config", DYING_OUT.values(), ids=DYING_OUT.keys())
def test_when_workers_die_out_the_run_ends_and_everything_comes_back(config: Config, monkeypatch) -> None:
    monkeypatch.setattr("stoker._runtime.scheduler.deaths.DEATHS_LIMIT", 1)
    found = explore(config)
    assert isinstance(found, Exploration), found
    assert found.ends > 0


def test_a_clone_goes_its_own_way() -> None:
    world = World(Config(TWO, tickets=2, kills=1))
    before = fingerprint(world)
    copy = clone(world, {})
    assert fingerprint(copy) == before
    copy.do(Step("plan"))
    copy.do(Step("receive", 1))
    assert fingerprint(world) == before
    assert fingerprint(copy) != before
    assert copy.scheduler._slots is copy.slots
    assert copy.scheduler._handlers.keys() == world.scheduler._handlers.keys()


def test_a_counterexample_can_be_replayed() -> None:
    class Forgetful(scheduler.Scheduler):
        def _recover(self, story, event):
            return []

    config = Config(ONE, tickets=1, workers=1, kills=1)
    found = explore(config, Forgetful)
    assert isinstance(found, Counterexample)
    world = replay(config, found.trail, Forgetful)
    assert not world.steps()
    assert not world.scheduler.finished
