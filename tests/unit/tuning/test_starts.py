"""Ways to start workers."""

from __future__ import annotations

from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.model.block import Block
from stoker._tools.tune.starts import Start, sentence, taken, try_starts

BOTH = (Start("fork", 60_000_000), Start("forkserver", 1_200_000_000))
NO_FORK = (Start("fork", None, "cannot fork."), Start("forkserver", 1_200_000_000))


def test_every_way_is_tried_once() -> None:
    run: list[Setting] = []

    def block(setting: Setting) -> Block:
        run.append(setting)
        if setting.start_method == "fork":
            return Block(setting, 0, 0, 0, failure="refused")
        return Block(setting, 3, 9, 1, first_ns=7)

    assert try_starts(block, 2) == (Start("fork", None, "refused"), Start("forkserver", 7))
    assert [(each.workers, each.start_method) for each in run] == [(2, "fork"), (2, "forkserver")]


def test_the_targets_own_way_stays_unless_only_another_works() -> None:
    assert taken(BOTH, None, "fork") is None
    assert taken(BOTH, "forkserver", "fork") == "forkserver"
    assert taken(NO_FORK, None, "fork") == "forkserver"
    assert taken(NO_FORK, "spawn", "fork") == "spawn"
    assert taken((Start("fork", None, "no"), Start("forkserver", None, "no")), None, "fork") is None


def test_what_is_said() -> None:
    assert sentence(BOTH, "forkserver", "fork") == (
        "by fork the first batch comes after 60 ms, by forkserver after 1.2 s (yours: forkserver); "
        "persistent workers pay that once"
    )
    assert sentence(NO_FORK, None, "fork") == "fork cannot start these workers (cannot fork); forkserver can"
    assert sentence((Start("fork", 60_000_000), Start("forkserver", 90_000_000)), None, "fork") == ""
    assert sentence((), None, "fork") == ""
