"""A signal to a whole group is told from one to the supervisor alone, also if several come at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from stoker._tools.profile.signal_probe import SignalProbe
from stoker._tools.sandbox.child import run

USED = {signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGRTMIN}


def supervised(to_group: Sequence[int], alone: Sequence[int]) -> list[bool]:
    """What a probe says of all these signals, in a group of their own. Those to the group come first, all at once."""

    def ask() -> list[bool]:
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, USED)
        probe = SignalProbe()
        try:
            for number in to_group:
                os.killpg(0, number)
            said = [probe.received(number) for number in to_group]
            for number in alone:
                os.kill(os.getpid(), number)
            return said + [probe.received(number) for number in alone]
        finally:
            probe.close()

    (found,) = run([ask], 60)
    assert isinstance(found, list), found
    return found


def test_signals_that_come_to_a_group_at_once_are_each_known() -> None:
    numbers = [signal.SIGTERM, signal.SIGUSR1, signal.SIGRTMIN]
    assert supervised(numbers, []) == [True, True, True]


def test_a_signal_to_one_process_is_known_after_one_to_the_group() -> None:
    assert supervised([signal.SIGUSR1], [signal.SIGUSR1, signal.SIGUSR2]) == [True, False, False]
