"""The forecast for remote CPUs, on work that is given: which limit comes first, and what is advised."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from stoker._runtime.simulation.work import Work
from stoker._tools.tune import remote
from stoker._tools.tune.remote import RemoteForecast, forecast, lines
from stoker.cli.tune import command


def work(batch_s: float, batch_bytes: int) -> Work:
    ns = int(batch_s * 1e9)
    return Work(64, (ns, ns), (ns, ns), batch_bytes=batch_bytes)


def told(points: tuple[remote.RemotePoint, ...], given: Work, local: int = 0) -> RemoteForecast:
    return RemoteForecast(
        "t", given.typical_ns / 1e9, given.batch_bytes, 64, local, remote.LINK_BYTES_S, None, points
    )


def test_cpus_are_the_limit_until_the_network_is() -> None:
    """The example of docs/ray.md: 0.4 s and 9.6 MB, over 1.1 GB/s."""
    heavy = work(0.4, 9_600_000)
    points = forecast(heavy, 64)
    assert [each.cpus for each in points] == [1, 2, 4, 8, 16, 32, 64]
    assert [each.limit for each in points] == ["CPUs"] * 6 + ["network"]
    assert points[5].batches_s == pytest.approx(80)
    assert points[6].batches_s == pytest.approx(1.1e9 / 9_600_000)
    four = forecast(work(0.4, 4 * 9_600_000), 64)
    assert next(each.cpus for each in four if each.limit == "network") == 16
    assert "num_workers=64, executor='ray'" in lines(told(points, heavy))[-1]


def test_local_workers_and_the_step() -> None:
    heavy = work(0.4, 9_600_000)
    assert forecast(heavy, 2, local=2)[-1].batches_s == pytest.approx(10)
    points = forecast(heavy, 32, step_s=0.1)
    assert points[-1].limit == "training step"
    assert points[-1].batches_s == pytest.approx(10)
    found = told(points, heavy)
    assert found.enough is not None
    assert found.enough.cpus == 4
    assert "local=1" in lines(told(forecast(heavy, 4, local=1), heavy, 1))[-1]


def test_ready_made_samples_stay_here() -> None:
    light = work(1e-4, 9_600_000)
    points = forecast(light, 32)
    assert points[0].limit == "network"
    assert "keep the workers on this machine" in lines(told(points, light))[-1]
    small = forecast(work(1e-4, 1000), 32)
    assert small[-1].limit == "training process"


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def answer(target: str, **options: object) -> RemoteForecast:
        asked.update(options)
        given = work(0.4, 9_600_000)
        return told(forecast(given, 4), given)

    monkeypatch.setattr(remote, "tune_remote", answer)
    ran = CliRunner().invoke(command, ["a:b", "--executor", "ray", "--remote-cpus", "4", "--link-gbit", "25"])
    assert ran.exit_code == 0, ran.output
    assert "remote CPUs" in ran.output
    assert asked["most"] == 4
    assert asked["link_bytes_s"] == 25 * remote.GBIT_BYTES
    ran = CliRunner().invoke(command, ["a:b", "--executor", "ray", "--json"])
    assert json.loads(ran.stdout)["enough"] == 4
    assert CliRunner().invoke(command, ["a:b", "--executor", "ray", "--fix"]).exit_code == 2


def test_no_batch_could_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = RemoteForecast("t", 0.0, 0, 0, 0, 1.0, None, (), "samples raise")
    assert failed.enough is None
    monkeypatch.setattr(remote, "tune_remote", lambda *_, **__: failed)
    ran = CliRunner().invoke(command, ["a:b", "--executor", "ray"])
    assert ran.exit_code == 1
    assert "samples raise" in ran.output
