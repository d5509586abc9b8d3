"""The child process that plays one leg: seeds in on stdin, a line each; accounts out on stdout, a line of JSON each."""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import logging
import resource
import signal
import sys
import warnings

from tests.soak.legs import LEGS

STACKS = signal.SIGUSR2
"""Asks a player for the stacks of its threads, on stderr. Workers forked from it answer too."""


def main(name: str) -> None:
    """Play until stdin ends."""
    faulthandler.enable()
    faulthandler.register(STACKS, all_threads=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # workers are crashed by the hundred
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background has it ignored

    leg = importlib.import_module(LEGS[name].module(name))
    warnings.simplefilter("error")  # torch's own import is past
    warnings.filterwarnings("ignore", "This DataLoader will create")
    warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork")
    logging.getLogger("stoker").setLevel(logging.CRITICAL)  # every killed worker is reported at length
    gc.collect()
    gc.freeze()  # collections, of which there are some per scenario, need not look at torch
    unable = leg.unable() if hasattr(leg, "unable") else ""
    print(json.dumps({"unable": unable}) if unable else "ready", flush=True)
    for line in sys.stdin:
        account = leg.play(int(line))
        account.leg = name
        print("\n" + account.to_json(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
