"""Another user of a Ray node: neither side of the socket of a node's host talks to them, and nothing of theirs is imported."""

from __future__ import annotations

import array
import os
import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker._runtime.executors.ray import node_host
from tests.fault.other_user import acting, as_other, everything_in, needs_root, shared_folder

pytestmark = needs_root


@pytest.fixture
def place() -> Iterator[Path]:
    with shared_folder() as folder:
        yield folder


_kept: list[Any] = []


class Marker:
    """Tells by a file that it was unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def _name() -> str:
    return next(node_host.addresses(os.urandom(6).hex(), "node"))


def test_the_host_of_a_node_takes_no_order_from_another_user(place: Path) -> None:
    """A request has a pickle: whoever could send one ran code as the owner of the cluster's job."""
    name, marker = _name(), place / "unpickled"
    listener = node_host.bind(name)
    assert listener is not None
    served = threading.Thread(target=node_host._HostServer(listener, None, None).serve)

    def orders() -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
            line.connect(name)
            line.settimeout(20)
            boot = os.memfd_create("boot")
            os.write(boot, pickle.dumps(Marker(marker)))
            os.lseek(boot, 0, os.SEEK_SET)
            passed = array.array("i", [boot] * len(node_host.FDS))
            try:
                line.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
                return line.recv(64).hex()
            except OSError as error:
                return type(error).__name__

    with listener:
        served.start()
        answer = as_other(orders)
        mine = node_host.connect(name)
        assert mine is not None
        mine.close()  # the host ends with its last connection
        served.join(60)
    assert not served.is_alive()
    assert answer in ("", "BrokenPipeError", "ConnectionResetError")
    assert not marker.exists()


def test_the_host_of_a_node_imports_nothing_from_the_current_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it has the search path of its relay, it looks where Python looks. In /tmp, others may have put a "json.py"."""
    as_other(lambda: (place / "json.py").write_text("open('imported', 'w')"))
    monkeypatch.chdir(place)
    monkeypatch.setattr(node_host, "_START", "import json")
    listener = node_host.bind(_name())
    assert listener is not None
    with listener:
        node_host.launch(listener, listener.fileno(), [])
    assert sorted(each.name for each in everything_in(place)) == ["json.py"]


def test_a_relay_does_not_connect_to_the_host_of_another_user() -> None:
    name = _name()

    def listens() -> int:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.bind(name)
        line.listen()
        _kept.append(line)
        return os.getpid()

    with acting(listens, until_told=True) as answer:
        answer()
        with pytest.raises(PermissionError, match="another user has taken the name"):
            node_host.connect(name)
    assert node_host.connect(name) is None


@pytest.mark.parametrize("listening", [True, False])
def test_a_taken_name_does_not_keep_a_relay_from_its_work(
    listening: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is bound by another user, listening or not: the next one is used."""
    relay = pytest.importorskip("stoker._runtime.executors.ray.relay", reason="Ray is not installed")
    monkeypatch.setattr(relay, "_TAKEN_S", 0.2)
    first, second, *_ = node_host.addresses("pool", os.urandom(6).hex())
    monkeypatch.setattr(node_host, "addresses", lambda pool, node: iter((first, second)))

    def takes() -> int:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.bind(first)
        if listening:
            line.listen()
        _kept.append(line)
        return os.getpid()

    with acting(takes, until_told=True) as answer:
        answer()
        host = node_host.bind(second)
        assert host is not None
        with host:
            line = relay.Relay._connect(object.__new__(relay.Relay), "pool", "node", [])
            assert line.getpeername() == second.encode()
            line.close()
        monkeypatch.setattr(node_host, "addresses", lambda pool, node: iter((first,)))
        with pytest.raises(PermissionError, match="another user of this node has taken the names"):
            relay.Relay._connect(object.__new__(relay.Relay), "pool", "node", [])
