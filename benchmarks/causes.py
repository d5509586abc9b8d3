"""``python -m benchmarks.causes``: does the verdict name the cause that a workload has by construction?

Every run is a fork of this process, which has imported torch and done nothing else. Rounds go over all workloads in turn, so
that a disturbance of a minute touches one run of several and not all runs of one. A run during which other programs had more than
half of the machine (``--most``) has the cause that they gave it: it is set aside, whatever its verdict, and repeated. It prints
which cause was named how often for each expected one, and how far the parts of the blame are from the wait that the loop measured
by its own clock.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import surroundings
from benchmarks.machine import LoadMark, cores
from benchmarks.workloads import ROWS, Workload, loop, workloads
from stoker import DataLoader
from stoker._record import journal
from stoker._record.causes.causes import find_causes
from stoker._record.causes.contention import foreign_cpus
from stoker._record.schema import RunRecord

_PATIENCE_S = 30
_CALM_S = 20.0
_REPEATS = 3


@dataclass(frozen=True)
class Outcome:
    """One run of one workload."""

    name: str
    expected: str
    named: str
    stall: float
    shares: dict[str, float]
    evidence: dict[str, float | None]
    blame_over_wait: float
    """The parts of the blame over the wait in the record."""
    blame_over_clock: float
    """The same over the wait that the loop measured by its own clock."""
    foreign_cpus: float | None
    surroundings: str

    def disturbed(self, most: float) -> bool:
        """Whether others had so much of the machine that the workload's own cause is not the only one."""
        return self.surroundings != "burners" and (self.foreign_cpus or 0.0) > most * cores()

    @property
    def right(self) -> bool:
        """Whether the verdict is the expected one."""
        return self.named == self.expected


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0 unless a run crashed: a wrong verdict is shown, not punished."""
    options = _parser().parse_args(argv)
    known = [each for each in workloads() if options.engine == "stoker" or not each.stoker_only]
    names = options.only.split(",") if options.only else [each.name for each in known]
    chosen = [each for each in known if each.name in names]
    if unknown := set(names) - {each.name for each in chosen}:
        print(
            f"no such workload: {', '.join(sorted(unknown))}; there are {', '.join(each.name for each in known)}"
        )
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    outcomes: list[Outcome] = []
    aside: list[Outcome] = []
    try:
        with ExitStack() as stack:
            stack.enter_context(surroundings.burners(options.load))
            for number in range(options.runs):
                for workload in chosen:
                    for _ in range(_REPEATS):
                        _calm(options.most)
                        outcome = run(workload, options.engine)
                        disturbed = outcome.disturbed(options.most)
                        _tell(number, outcome, disturbed=disturbed, verbose=options.verbose)
                        (aside if disturbed else outcomes).append(outcome)
                        if not disturbed:
                            break
    except KeyboardInterrupt:
        print("\ninterrupted: what follows covers the runs that were finished", file=sys.stderr)
    print(render(chosen, outcomes))
    if aside:
        right = sum(each.right for each in aside)
        print(
            f"set aside, because others had more than {options.most:.0%} of the machine: {len(aside)} runs, of which {right} right"
        )
    if options.json:
        report = {
            "format": "stoker-causes",
            "engine": options.engine,
            "runs": [asdict(each) for each in (*outcomes, *aside)],
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.causes", description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="runs of each workload (default 10)")
    parser.add_argument("--only", metavar="NAME,…", help="run these workloads")
    parser.add_argument(
        "--engine", choices=("stoker", "torch"), default="stoker", help="whose loader is measured"
    )
    parser.add_argument(
        "--load", type=int, default=0, metavar="N", help="N processes that compute beside everything"
    )
    parser.add_argument(
        "--most", type=float, default=0.5, metavar="SHARE",
        help="share of the machine that others may have, or a run is set aside (default 0.5)",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run as JSON here")
    parser.add_argument("--verbose", action="store_true", help="print the numbers of every run")
    return parser


def run(workload: Workload, engine: str) -> Outcome:
    """One run in a fork of this process, in the surroundings that it asks for."""
    with ExitStack() as stack:
        folder = stack.enter_context(surroundings.quota()) if workload.surroundings == "quota" else None
        where = "quota" if folder is not None else "alone"
        if folder is None and workload.surroundings != "alone":
            # Where no cgroup can be made, neighbours have to do: the verdict to expect is another one then.
            where = "burners"
            stack.enter_context(surroundings.burners())
        expected = "starved/neighbours" if where == "burners" else workload.expected
        target = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stoker-causes-")))
        pid = os.fork()
        if pid == 0:
            _child(workload, engine, target, folder)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
        signal.alarm(_PATIENCE_S)
        try:
            _, status = os.waitpid(pid, 0)
        finally:
            signal.alarm(0)
        if status:
            raise RuntimeError(f"{workload.name} ended with {os.waitstatus_to_exitcode(status)}")
        record = journal.read(target)
        clock_ns = int((target / "waited").read_text())
    return _outcome(workload, expected, where, record, clock_ns)


def _child(workload: Workload, engine: str, target: Path, folder: Path | None) -> None:
    """The run itself. Does not return."""
    code = 1
    try:
        if folder is not None:
            surroundings.enter(folder)
        warnings.simplefilter("ignore")  # of more workers than CPUs: that is the point
        if engine == "torch":
            waited_ns = _measured_torch(workload, target)
        else:
            loader: Any = DataLoader(workload.dataset, batch_size=ROWS, **workload.arguments)
            waited_ns = loop(workload, loader)
            journal.write(RunRecord.from_dict(loader.stats()["record"]), target / "record.json")
            loader.close()
        (target / "waited").write_text(str(waited_ns))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _measured_torch(workload: Workload, target: Path) -> int:
    """The loop over torch's DataLoader, measured as ``stoker profile`` measures it."""
    from torch.utils.data import DataLoader as TorchLoader

    from stoker._tools.profile.torch_loader import install

    os.environ["STOKER_RECORD"] = str(target)
    install.install()
    loader: Any = TorchLoader(workload.dataset, batch_size=ROWS, **workload.arguments)
    waited_ns = loop(workload, loader)
    install.uninstall()
    return waited_ns


def _outcome(workload: Workload, expected: str, where: str, record: RunRecord, clock_ns: int) -> Outcome:
    (loader,) = record.loaders
    causes = find_causes(loader, record.machine)
    named = "none" if causes.severity == "none" else str(causes.cause)
    if causes.culprit is not None and named != "none":
        named = f"{named}/{causes.culprit}"
    blamed_ns = sum(each.ns for each in loader.blame)
    return Outcome(
        workload.name,
        expected,
        named,
        causes.stall or 0.0,
        {cause: round(causes.share(cause), 3) for cause in {each.cause for each in causes.parts}},
        {each.code: each.value for each in causes.evidence},
        blamed_ns / max(1, loader.totals.wait_ns),
        blamed_ns / max(1, clock_ns),
        foreign_cpus(loader.load),
        where,
    )


def render(chosen: list[Workload], outcomes: list[Outcome]) -> str:
    """The matrix: a line per workload, a column per cause that was named."""
    if not outcomes:
        return "nothing was run"
    columns = sorted({each.expected for each in outcomes} | {each.named for each in outcomes})
    head = f"{'workload':10}" + "".join(f"  {_short(each)}" for each in columns) + "  by the clock"
    lines = [head, "-" * len(head)]
    for workload in chosen:
        mine = [each for each in outcomes if each.name == workload.name]
        if not mine:
            continue
        counts = Counter(each.named for each in mine)
        cells = "".join(
            f"  {_cell(counts[each], each == mine[0].expected):>{len(_short(each))}}" for each in columns
        )
        apart = max(abs(each.blame_over_clock - 1) for each in mine)
        mark = "" if all(each.right for each in mine) else f"   WRONG: {mine[0].expected}"
        lines.append(f"{workload.name:10}{cells}  {apart:12.2%}{mark}")
    right = sum(each.right for each in outcomes)
    record = max(abs(each.blame_over_wait - 1) for each in outcomes)
    lines.append(f"{right} of {len(outcomes)} verdicts are right (*: the expected one)")
    lines.append(
        f"the parts of the blame are at most {record:.3%} from the wait of the record; by the clock: from what the loop measured"
    )
    lines += [
        f"{each.name}: {each.describe}; run in: {_where(outcomes, each)}"
        for each in chosen
        if each.surroundings != "alone"
    ]
    return "\n".join(lines)


def _cell(count: int, expected: bool) -> str:
    return f"{count or '·'}{'*' if expected else ' '}"


def _short(named: str) -> str:
    """Who had the CPU says it all."""
    return named.rpartition("/")[2]


def _where(outcomes: list[Outcome], workload: Workload) -> str:
    return ", ".join(sorted({each.surroundings for each in outcomes if each.name == workload.name}))


def _calm(most: float) -> None:
    """Wait until others leave enough of the machine, but not for ever."""
    until_s = time.monotonic() + _CALM_S
    while time.monotonic() < until_s:
        before = LoadMark.now()
        time.sleep(0.2)
        if before.foreign_cores(LoadMark.now()) < most * cores():
            return


def _tell(number: int, outcome: Outcome, *, disturbed: bool, verbose: bool) -> None:
    if not verbose and (outcome.right or disturbed):
        return
    mark = "aside" if disturbed else "right" if outcome.right else "WRONG"
    shares = " ".join(
        f"{cause} {share:.2f}" for cause, share in sorted(outcome.shares.items(), key=lambda item: -item[1])
    )
    facts = " ".join(f"{code}={value:.3g}" for code, value in outcome.evidence.items() if value is not None)
    print(
        f"{number + 1:3} {outcome.name:8} {mark} {outcome.named:18} stall {outcome.stall:.2f} | {shares} | {facts}"
        f" | others {outcome.foreign_cpus if outcome.foreign_cpus is None else round(outcome.foreign_cpus, 2)}",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
