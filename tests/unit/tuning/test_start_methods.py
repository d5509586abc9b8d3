"""Ways to start workers."""

from __future__ import annotations

from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.knobs.multiprocessing_context import (
    StartTrial,
    chosen_start,
    start_sentence,
    try_starts,
)
from stoker._tools.tune.model.block import Block

BOTH = (StartTrial("fork", 60_000_000), StartTrial("forkserver", 1_200_000_000))
NO_FORK = (StartTrial("fork", None, "cannot fork."), StartTrial("forkserver", 1_200_000_000))


def test_every_way_is_tried_once() -> None:
    run: list[Setting] = []

    def block(setting: Setting) -> Block:
        run.append(setting)
        if setting.start_method == "fork":
            return Block(setting, 0, 0, 0, failure="refused")
        return Block(setting, 3, 9, 1, first_ns=7)

    assert try_starts(block, 2) == (StartTrial("fork", None, "refused"), StartTrial("forkserver", 7))
    assert [(each.workers, each.start_method) for each in run] == [(2, "fork"), (2, "forkserver")]


def test_the_targets_own_way_stays_unless_only_another_works() -> None:
    assert chosen_start(BOTH, None, "fork") is None
    assert chosen_start(BOTH, "forkserver", "fork") == "forkserver"
    assert chosen_start(NO_FORK, None, "fork") == "forkserver"
    assert chosen_start(NO_FORK, "spawn", "fork") == "spawn"
    assert (
        chosen_start((StartTrial("fork", None, "no"), StartTrial("forkserver", None, "no")), None, "fork")
        is None
    )


def test_what_is_said() -> None:
    assert start_sentence(BOTH, "forkserver", "fork") == (
        "by fork the first batch comes after 60 ms, by forkserver after 1.2 s (yours: forkserver); "
        "persistent workers pay that once"
    )
    assert (
        start_sentence(NO_FORK, None, "fork")
        == "fork cannot start these workers (cannot fork); forkserver can"
    )
    assert (
        start_sentence((StartTrial("fork", 60_000_000), StartTrial("forkserver", 90_000_000)), None, "fork")
        == ""
    )
    assert start_sentence((), None, "fork") == ""
