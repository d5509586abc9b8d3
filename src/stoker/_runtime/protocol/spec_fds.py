"""Passes the descriptors of a packed spec to a starting process; the data itself is not copied."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from multiprocessing import reduction
from typing import Any

from stoker._pickling import spec_pickle
from stoker._runtime.protocol import wire


@dataclass(slots=True)
class SpecFds:
    """The descriptors of a packed spec, by their numbers in the process that holds this object."""

    fd: int
    fds: list[int]
    fds_socket: int = -1
    """The socket that brings the descriptors when they are too many to be passed one by one."""

    def __reduce__(self) -> Any:
        """For spawn and forkserver: duplicate every descriptor for the child. Called while the process is spawned."""
        by_socket = self.fds_socket >= 0
        rest = [self.fds_socket] if by_socket else self.fds
        return _arrive, ([reduction.DupFd(fd) for fd in (self.fd, *rest)], by_socket)

    def unpack(self) -> Any:
        """Return the object. Called once, in the process that received it."""
        return spec_pickle.unpack(self.fd, self.fds)


def _arrive(passed: list[Any], by_socket: bool) -> SpecFds:
    fd, *fds = [item.detach() for item in passed]
    return SpecFds(fd, _receive_fds(*fds) if by_socket else fds)


def _receive_fds(fd: int) -> list[int]:
    fds: list[int] = []
    with socket.socket(fileno=fd) as parcel:
        while True:
            data, found, _, _ = socket.recv_fds(parcel, 1, wire.FDS_PER_MESSAGE)
            if not data:
                return fds
            fds += found
