"""Hosts in network namespaces, joined by a bridge. One can be cut off from the others, and joined again.

The process that uses ``Network`` runs below ``enter()``: in a network and a mount namespace of its own. Its interfaces, the other
namespaces and their names under ``/run/netns`` end with the last process in them, however it ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HEAD = "10.77.0.1"
"""The address of the process that made the network; the first host has the next one."""
_BRIDGE = "stk-bridge"
_ENTER = ("unshare", "--mount", "--net", "--propagation", "private")
_TRIAL = "mount -t tmpfs none /run && ip link add stk-trial type bridge && ip netns add stk-trial"


def absent() -> str:
    """The names of programs that are not installed, or ""."""
    return ", ".join(name for name in ("ip", "unshare", "mount") if shutil.which(name) is None)


def enter() -> tuple[str, ...]:
    """The command that starts a program where namespaces can be made. With a user namespace, unless this is root."""
    return _ENTER if os.geteuid() == 0 else (*_ENTER, "--map-root-user")


def refusal() -> str:
    """Why namespaces cannot be made here; "" when they can."""
    if missing := absent():
        return f"{missing} is not installed: make network"
    ran = subprocess.run([*enter(), "sh", "-c", _TRIAL], capture_output=True, text=True, timeout=20)
    if ran.returncode == 0:
        return ""
    reason = (ran.stderr or ran.stdout).strip().splitlines() or ["unknown"]
    return f"network namespaces are not permitted here: {reason[-1]}"


@dataclass(frozen=True, slots=True)
class Host:
    """A network namespace with one interface. ``port`` is its end at the bridge."""

    name: str
    address: str
    port: str

    def start(
        self, argv: Sequence[str], environment: Mapping[str, str], **more: Any
    ) -> subprocess.Popen[bytes]:
        """Start a program on this host."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *argv], env=dict(environment), **more)


class Network:
    """A bridge with an address, and hosts at it. Made below ``enter()``; nothing has to be removed."""

    def __init__(self, hosts: int) -> None:
        _run("mount", "-t", "tmpfs", "none", "/run")
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", _BRIDGE, "type", "bridge")
        _run("ip", "address", "add", f"{HEAD}/24", "dev", _BRIDGE)
        _run("ip", "link", "set", _BRIDGE, "up")
        self.hosts = [self._host(number) for number in range(1, hosts + 1)]

    def cut(self, host: Host) -> None:
        """Let nothing through to the host or from it. Connections stay open and get no answer."""
        _run("ip", "link", "set", host.port, "down")

    def join(self, host: Host) -> None:
        """Let it through again."""
        _run("ip", "link", "set", host.port, "up")

    def _host(self, number: int) -> Host:
        name, port = f"stk-{number}", f"stk-port-{number}"
        base, _, last = HEAD.rpartition(".")
        host = Host(name, f"{base}.{int(last) + number}", port)
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "link", "set", port, "master", _BRIDGE, "up")
        _run("ip", "-n", name, "address", "add", f"{host.address}/24", "dev", "eth0")
        for interface in ("lo", "eth0"):
            _run("ip", "-n", name, "link", "set", interface, "up")
        return host


def _run(*argv: str) -> None:
    ran = subprocess.run(argv, capture_output=True, text=True)
    if ran.returncode:
        raise OSError(f"{' '.join(argv)}: {ran.stderr.strip()}")
