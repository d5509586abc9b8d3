"""Runs a case in a fork, or in one fork for each rank: a framework is imported once, and what it keeps in globals is forgotten."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from stoker._tools.profile import swap

BOUND_S = 100
"""How long a case may take; it only bounds a failure."""


def in_fork(body: Callable[..., Any], *args: Any, swapped: bool = False) -> Any:
    """What ``body`` returns in a child process; ``swapped``: with stoker's loaders in place of torch's, as under ``stoker run``."""
    return _all([_Case(body, args, swapped, {})])[0]


def on_ranks(world_size: int, body: Callable[..., Any], *args: Any, swapped: bool = False) -> list[Any]:
    """What ``body`` returns on each rank of a gloo process group. ``body`` or its framework opens the group."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(world_size)}
    common["LOCAL_WORLD_SIZE"] = common["WORLD_SIZE"]
    ranks = [{**common, "RANK": str(each), "LOCAL_RANK": str(each)} for each in range(world_size)]
    return _all([_Case(body, args, swapped, rank) for rank in ranks])


_ports = itertools.count()
_FIRST_PORT, _PORTS = 20_000, 12_000
"""Between the ports of Ray's workers and those that the kernel gives to any connection: nobody takes one before the rank does."""


def _free_port() -> int:
    """A port where nobody listens, another one at each call."""
    for number in itertools.islice(_ports, _PORTS):
        port = _FIRST_PORT + (os.getpid() * 37 + number) % _PORTS
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no port is free")


class _Case:
    """One child."""

    def __init__(
        self, body: Callable[..., Any], args: tuple[Any, ...], swapped: bool, environ: dict[str, str]
    ) -> None:
        context = multiprocessing.get_context("fork")
        self.answer, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_run, args=(theirs, body, args, swapped, environ))
        self.process.start()
        theirs.close()

    def result(self) -> tuple[bool, Any]:
        """Whether it went well, and what it returned or the traceback."""
        try:
            if not self.answer.poll(BOUND_S):
                return False, "the case did not end in time"
            return self.answer.recv()
        except EOFError:
            return False, "the case's process died"

    def close(self) -> None:
        """End the child if it has not ended."""
        self.answer.close()
        self.process.join(BOUND_S / 4)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.process.close()


def _all(cases: list[_Case]) -> list[Any]:
    try:
        results = [case.result() for case in cases]
    finally:
        for case in cases:
            case.close()
    failures = [value for fine, value in results if not fine]
    assert not failures, "\n".join(failures)
    return [value for _, value in results]


def _run(
    answer: Connection,
    body: Callable[..., Any],
    args: tuple[Any, ...],
    swapped: bool,
    environ: dict[str, str],
) -> None:
    os.environ.update({"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", **environ})
    torch.set_num_threads(1)
    if swapped:
        swap.install()
    try:
        value = True, body(*args)
    except BaseException:
        value = False, traceback.format_exc()
    answer.send(value)
    answer.close()
