"""The child process that plays: seeds in on stdin, a line each; accounts out on stdout, a line of JSON each."""

from __future__ import annotations

import faulthandler
import resource
import signal
import sys
import warnings

STACKS = signal.SIGUSR2
"""Asks a player for the stacks of its threads, on stderr. Workers forked from it answer too."""


def main() -> None:
    """Play until stdin ends."""
    faulthandler.enable()
    faulthandler.register(STACKS, all_threads=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # workers are crashed by the hundred

    from tests.soak.play import play
    from tests.soak.scenario import draw

    warnings.simplefilter("error")  # torch's own import is past
    warnings.filterwarnings("ignore", "This DataLoader will create")
    warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork")
    print("ready", flush=True)
    for line in sys.stdin:
        print(play(draw(int(line))).to_json(), flush=True)


if __name__ == "__main__":
    main()
