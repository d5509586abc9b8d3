"""``stoker doctor --device`` on the fake device: the table, the findings, and that it catches a copy that came too late."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from stoker._runtime.device.device_stager import EventFence
from stoker._runtime.device.host_registers import HOST_REGISTERS, HostRegister
from stoker._tools.doctor.device_test import measures
from stoker._tools.doctor.device_test.device_test import examine_device
from stoker.cli.doctor import command
from stoker.errors import DeviceError
from tests.fake_device import NAME, FakeDevice


@pytest.fixture(autouse=True)
def _small(careless: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    HOST_REGISTERS[NAME] = HostRegister(careless.register_host, careless.unregister_host)
    monkeypatch.setattr(measures, "BLOCK_BYTES", 1 << 20)
    monkeypatch.setattr(measures, "_MATRIX", 32)
    careless.order("late", delay_s=0.002)


def test_a_sound_device(fake: FakeDevice) -> None:
    report = examine_device(NAME, 600)
    table = dict(report.rows)
    assert report.device == f"{NAME}:0"
    assert table["batches"].startswith("600 in ")
    assert (table["wrong batches"], table["registering"][:9]) == ("0", "1 MiB in ")
    assert table["registrations"].endswith(", 0 left after close()")
    assert all("GB/s" in table[f"from {kind} memory"] for kind in ("pageable", "pinned", "registered"))
    assert [each.severity for each in report.findings if each.severity != "low"] == []
    assert fake.registered() == []


def test_a_device_that_refuses_memory(fake: FakeDevice) -> None:
    fake.fail_registrations()
    fake.fail_pinning()
    report = examine_device(NAME, 200)
    table = dict(report.rows)
    assert table["registering"] == "the driver's error 304"
    assert (table["from pinned memory"], table["from registered memory"]) == ("none", "none")
    assert table["wrong batches"] == "0"
    assert [each.code for each in report.findings][:2] == ["STK709", "STK709"]


def test_it_catches_slots_that_are_freed_too_early(
    careless: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EventFence, "done", lambda _: True)
    careless.order("late", delay_s=0.05)
    report = examine_device(NAME, 300)
    # Most often a batch has wrong bytes; the device may also refuse to copy a slot that is not there any more.
    assert (
        int(dict(report.rows)["wrong batches"]) > 0 or "could not be brought" in report.findings[0].evidence
    )
    assert (report.findings[0].code, report.findings[0].severity) == ("STK901", "high")


def test_the_command_prints_a_table_or_json(fake: FakeDevice) -> None:
    run = CliRunner()
    shown = run.invoke(command, ["--device", NAME, "--batches", "100"])
    assert shown.exit_code == 0, shown.output
    assert f"The way to {NAME}:0" in shown.stdout
    assert "wrong batches" in shown.stdout
    found = json.loads(run.invoke(command, ["--device", "auto", "--batches", "100", "--json"]).stdout)
    assert found["table"]["wrong batches"] == "0"


def test_devices_that_are_not_there(fake: FakeDevice) -> None:
    for name in ("cuda", "cpu", "nonsense"):
        with pytest.raises(DeviceError):
            examine_device(name, 1)
    refused = CliRunner().invoke(command, ["--device", "cuda"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert CliRunner().invoke(command, ["script.py:loader", "--device", "cuda"]).exit_code == 2
