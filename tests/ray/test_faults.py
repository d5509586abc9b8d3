"""Actors, raylets, nodes, the network, the driver and the head vanish: no row is lost, repeated, reordered or changed."""

from __future__ import annotations

import pytest

from tests.frameworks.packages import absent, needs
from tests.ray import namespaces
from tests.ray.stage import run

needs("ray")
if missing := namespaces.absent():
    absent(f"{missing} is not installed: make network")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(145)]

BOUND_S = 135.0
"""For one stage; it only bounds a failure. After 150 s, pytest would end its whole process."""


def test_a_worker_an_actor_a_raylet_and_a_node_are_killed() -> None:
    found = run("scenarios.faults", within_s=BOUND_S)
    assert found["findings"] == []
    assert found["batches"] == 90
    assert found["workers"] > 3  # others were started in their place


def test_a_host_is_cut_off_and_comes_back() -> None:
    if reason := namespaces.refusal():
        pytest.skip(reason)
    found = run("scenarios.cut_off", within_s=BOUND_S, prefix=namespaces.enter())
    assert found["findings"] == []
    assert found["batches"] == 120


@pytest.mark.parametrize("near", [False, True], ids=["elsewhere", "near"])
def test_actors_end_with_their_driver(near: bool) -> None:
    assert run("scenarios.driver_dies", within_s=BOUND_S, near=near)["findings"] == []


def test_the_head_is_lost() -> None:
    found = run("scenarios.head_lost", within_s=BOUND_S)
    assert found["findings"] == []
    assert found["error"].startswith("ClusterError STK328")
