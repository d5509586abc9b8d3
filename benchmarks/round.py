"""The process of a round: ``python -m benchmarks.round --side torch --case NAME`` prints one line of JSON.

Without ``--case`` it talks to the runner: prints ``ready`` once everything is imported, then measures each
case named on a line of standard input and answers with one line, until the input ends. The wait lets the
runner start several processes together and still measure strictly one after the other.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
import warnings
from dataclasses import asdict
from importlib import import_module

from benchmarks.cases import registry
from benchmarks.entries import FULL, QUICK, Case, Metric, Micro
from benchmarks.machine import LoadMark, cores
from benchmarks.measure import LoaderType, Measurement, measure

SIDES = ("torch", "stoker", "inline")


def loader_type_of(side: str) -> LoaderType:
    """Return the loader class of a side; ``inline`` is torch's, run without workers."""
    if side == "stoker":
        # By name, so that torch against torch, the check of the harness itself, needs nothing of ours.
        loader_type: LoaderType = import_module("stoker").DataLoader
        return loader_type
    from torch.utils.data import DataLoader

    return DataLoader


def prepare() -> None:
    """Level the ground: no descriptor limit in the way, no warning about the number of cores."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # torch needs a descriptor per tensor in flight: the list case alone holds hundreds.
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    warnings.filterwarnings("ignore", message="This DataLoader will create")


def run(entry: Case | Micro, side: str, loader_type: LoaderType, quick: bool) -> Measurement:
    """Build the case and measure it once."""
    if isinstance(entry, Micro):
        return _run_micro(entry)
    effort = QUICK if quick else FULL
    arguments = {**entry.build(effort), "num_workers": 0 if side == "inline" else entry.workers}
    if side == "stoker":
        arguments = entry.ours(arguments)
    if side == "inline":
        import torch

        # A worker computes on one thread; an inline process spread over several cores would be another thing.
        torch.set_num_threads(1)
    return measure(entry, loader_type, arguments, effort)


def _run_micro(entry: Micro) -> Measurement:
    before, start_s = LoadMark.now(), time.perf_counter()
    value = entry.run()
    elapsed_s = time.perf_counter() - start_s
    foreign = before.foreign_cores(LoadMark.now())
    if entry.metric is Metric.MICRO:
        return Measurement(value, value, 1, elapsed_s, foreign, cores(), "")
    elapsed_us = elapsed_s * 1e6
    return Measurement(elapsed_us, elapsed_us, 1, elapsed_s, foreign, cores(), "", {entry.metric.fact: value})


def main() -> None:
    """Measure what the command line or the runner names."""
    entries = registry()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.round", description=__doc__)
    parser.add_argument("--side", required=True, choices=SIDES)
    parser.add_argument("--case", choices=list(entries))
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    prepare()
    loader_type = loader_type_of(options.side)
    if options.case is None:
        print("ready", flush=True)
    # iter(readline, "") and not the file's own iterator, which reads ahead.
    names = iter(sys.stdin.readline, "") if options.case is None else [options.case]
    for name in names:
        measurement = run(entries[name.strip()], options.side, loader_type, options.quick)
        print(json.dumps(asdict(measurement)), flush=True)


if __name__ == "__main__":
    main()
