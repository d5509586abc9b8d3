"""Every test of this folder runs in a process of its own: torch cannot forget the fake accelerator that these tests load.

The process is forked from the test process, which never loads the device. Setup, call, teardown and the leak guard all run
in the child; its reports come back through a pipe. A child that dies, by an access to device memory for instance, is a failure
of its test and of no other.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from _pytest.runner import runtestprotocol
from torch.torch_version import TorchVersion

from tests import fake_device

_HERE = Path(__file__).parent
_NEWEST_FIRST = TorchVersion("2.13")
_LIMIT_S = 100.0
"""How long a test may take. Less than the limit of pytest's own, which would end the whole run here."""


@pytest.fixture
def careless() -> fake_device.FakeDevice:
    """The hostile device, for tests that break its rules."""
    device = fake_device.load()
    device.order("late")
    return device


@pytest.fixture
def fake(careless: fake_device.FakeDevice) -> Iterator[fake_device.FakeDevice]:
    """The hostile device. A test that breaks a rule of it, such as to unregister memory that is being copied, fails."""
    yield careless
    assert careless.violations() == []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The device is written for the interface of a new torch."""
    if TorchVersion(torch.__version__) < _NEWEST_FIRST:
        for item in items:
            if item.path.parent == _HERE:
                item.add_marker(
                    pytest.mark.skip(reason=f"the fake accelerator needs torch {_NEWEST_FIRST} or newer")
                )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test of this folder in a forked child and log its reports here."""
    if item.path.parent != _HERE or TorchVersion(torch.__version__) < _NEWEST_FIRST:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports_of_child(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.session._setupstate.teardown_exact(nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _reports_of_child(item: pytest.Item) -> list[pytest.TestReport]:
    try:
        fake_device.library()
    except RuntimeError as error:
        return [_failure(item, str(error))]
    item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # children make their folders below one
    faulthandler.cancel_dump_traceback_later()  # its thread would not be in the child, where pytest waits for it
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _run_and_exit(item, writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        if not select.select([pipe], [], [], _LIMIT_S)[0]:
            os.kill(pid, signal.SIGABRT)  # pytest's fault handler writes the stacks of its threads
        lines = pipe.read().splitlines()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    hook = item.config.hook
    reports = [
        hook.pytest_report_from_serializable(config=item.config, data=json.loads(line)) for line in lines
    ]
    if status:
        reports.append(_failure(item, f"the test's process ended with {_words_for(status)}\n{_output(item)}"))
    return reports


def _run_and_exit(item: pytest.Item, writer: int) -> None:
    status = 1
    try:
        torch.set_num_threads(1)  # the pool's threads stayed with the parent
        parent: Any = item.parent
        # Teardown stops at the test's module: what is above it belongs to the parent.
        reports = runtestprotocol(item, log=False, nextitem=parent)
        hook = item.config.hook
        data = [hook.pytest_report_to_serializable(config=item.config, report=report) for report in reports]
        with open(writer, "w") as pipe:
            pipe.writelines(json.dumps(report) + "\n" for report in data)
        status = 0
    finally:
        os._exit(status)


def _failure(item: pytest.Item, text: str) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome="failed",
        longrepr=text,
        when="call",
    )


def _words_for(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"code {status}"


def _output(item: pytest.Item) -> str:
    capture = item.config.pluginmanager.getplugin("capturemanager")
    return (
        "".join(capture.read_global_capture())
        if capture is not None and capture.is_globally_capturing()
        else ""
    )
