"""Plays one scenario: expectations first, then the disturbed run, then what was left behind."""

from __future__ import annotations

import signal
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import stoker
from stoker.errors import LoaderClosed
from tests.compat.compare import seed_everything
from tests.soak.account import Account
from tests.soak.accounting import accounted, check_receipt
from tests.soak.workers.assailant import KILLS, Assailant
from tests.soak.workers.datasets import collate_ragged, dataset_of
from tests.soak.workers.reading import Outcome, Reading, outcomes
from tests.soak.workers.scenario import DEATHS, Epoch, Scenario, stream_indices

_RESTARTS = 1000
"""Kills from outside may hit one ticket again and again; the bound per ticket is tested elsewhere."""


def play(scenario: Scenario) -> Account:
    """Play on this thread and account for it. Raises nothing that the scenario led to: findings are in the account."""
    where = scenario.start if scenario.executor == "process" else scenario.executor
    account = Account(scenario.seed, scenario.title(), where=where)
    with accounted(account) as folder:
        _Play(scenario, account, folder).run()
    return account


class _Play:
    """The run of one scenario. Used once."""

    def __init__(self, scenario: Scenario, account: Account, folder: Path) -> None:
        self._scenario = scenario
        self._account = account
        self._folder = folder
        self._dice = Random(scenario.seed + 1)
        self._assailant = Assailant(account, Random(scenario.seed + 2))
        self._kills_left = scenario.kills
        self._readings: list[Reading] = []
        self._expected_stats: dict[str, Any] = {}
        self._expected_receipts: list[Any] = []

    def run(self) -> None:
        scenario = self._scenario
        dataset, script = dataset_of(scenario, self._folder, calm=False)
        try:
            expected = self._expectations()
            loader = _loader(scenario, dataset)
            for number, epoch in enumerate(scenario.epochs):
                self._epoch(loader, epoch, number, expected)
                if self._account.findings:
                    break
                self._strike_idle(loader)
            self._check_stats(loader)
            if scenario.finale == "close":
                loader.close()
            elif scenario.finale == "with":
                with loader:
                    pass
            del loader
            for reading in self._readings:  # the loader is gone, what it delivered is not
                reading.release()
            self._readings.clear()
        finally:
            self._assailant.close()
        for kind in (*DEATHS, "slow"):
            self._account.faults[f"row {kind}"] += script.marks.count(f"{kind}-")

    def _epoch(self, loader: Any, epoch: Epoch, number: int, expected: list[list[Outcome]]) -> None:
        """Read one epoch, and its twin if it has one, in random turns."""
        if epoch.end == "unread":
            iter(loader)
            self._account.faults["early unread"] += 1
            return
        running = []
        for twin in range(1 + epoch.twin):
            seed_everything(_epoch_seed(self._scenario, number, twin))
            reading = Reading(
                iter(loader),
                expected[2 * number + twin],
                self._scenario,
                self._account,
                f"epoch {number}.{twin}",
            )
            running.append(reading)
            self._readings.append(reading)
            reading.step()  # draws the order before the next seeding
        while live := [reading for reading in running if not reading.over]:
            if epoch.end != "exhaust" and running[0].taken > epoch.after:
                break
            reading = self._dice.choice(live)
            self._strike(reading)
            reading.step()
        early = any(not reading.over for reading in running)
        if early:
            self._account.faults[f"early {epoch.end}"] += 1
            if epoch.end in ("break", "shutdown", "close") and not self._scenario.persistent:
                self._strike(running[0], leave_stopped=True)
        elif not self._account.findings and self._scenario.in_order and len(running) == 1:
            check_receipt(self._account, loader.receipt(), self._expected_receipts[number], self._folder)
        self._end(loader, epoch.end, running)

    def _end(self, loader: Any, end: str, running: list[Reading]) -> None:
        """End the epoch the way the scenario says; what is over already is let go in any case."""
        if end == "close":
            loader.close()
        for reading in running:
            if end == "shutdown":
                reading.iterator._shutdown_workers()
            if end in ("close", "shutdown") and self._scenario.num_workers and not reading.over:
                self._check_closed(reading)
            if end != "keep" or reading.over:
                reading.iterator = None
            reading.over = True

    def _check_closed(self, reading: Reading) -> None:
        """Nothing comes from an iterator whose workers were ended: it says so or is over, and does not wait."""
        try:
            next(reading.iterator)
        except (StopIteration, LoaderClosed):
            return
        self._account.find("duplicated", "a batch came from an iterator that was closed")

    def _strike(self, reading: Reading, *, leave_stopped: bool = False) -> None:
        """Perhaps a fault from outside: before the next batch is asked for, or while it is waited for."""
        dice, assailant = self._dice, self._assailant
        if dice.random() >= self._scenario.outside:
            return
        workers = reading.iterator._workers
        if leave_stopped:  # only where the pool is about to be closed: nobody else would let the worker go on
            assailant.strike(workers, signal.SIGSTOP)
            return
        how = dice.choice(("kill", "kill", "kill later", "kill later", "stop", "stop and kill"))
        if how != "stop" and self._kills_left <= 0:
            return
        self._kills_left -= how != "stop"
        soon_s, late_s = dice.uniform(0, 0.02), dice.uniform(0.001, 0.08)
        if how == "kill":
            assailant.strike(workers, dice.choice(KILLS))
        elif how == "kill later":
            assailant.later(workers, [(soon_s, dice.choice(KILLS))])
        else:
            last = signal.SIGCONT if how == "stop" else signal.SIGKILL
            assailant.later(workers, [(soon_s, signal.SIGSTOP), (late_s, last)])

    def _strike_idle(self, loader: Any) -> None:
        """Perhaps kill a persistent worker while nobody iterates."""
        pool = loader._iterator
        if pool is not None and self._kills_left > 0 and self._dice.random() < self._scenario.outside:
            self._kills_left -= 1
            self._assailant.strike(pool._workers, self._dice.choice(KILLS))

    def _check_stats(self, loader: Any) -> None:
        """What the loader counted: after whole epochs the same as undisturbed, however often a batch was made."""
        scenario, expected, found = self._scenario, self._expected_stats, loader.stats()
        self._account.faults["bad sample"] += found["bad_samples"]["count"]
        if self._account.findings or any(epoch.end != "exhaust" for epoch in scenario.epochs):
            return
        counted = ["batches", "empty_batches"]
        if scenario.stream:  # by number in its stream: one number stands for a sample of each worker
            expected, found = ({**each, **each["bad_samples"]} for each in (expected, found))
            counted.append("count")
        else:
            counted.append("bad_samples")
        for name in counted:
            if expected[name] != found[name]:
                self._account.find(
                    "miscounted", f"stats: {name} is {found[name]}, undisturbed {expected[name]}"
                )

    def _expectations(self) -> list[list[Outcome]]:
        """Per epoch and twin, what an undisturbed run gives: without workers, or for streams with as many."""
        scenario = self._scenario
        dataset, _ = dataset_of(scenario, self._folder, calm=True)
        found: list[list[Outcome]] = []
        with _reference(scenario, dataset) as loader:
            for number, epoch in enumerate(scenario.epochs):
                for twin in range(2):
                    if twin and not epoch.twin:
                        found.append([])
                        continue
                    seed_everything(_epoch_seed(scenario, number, twin))
                    found.append(outcomes(iter(loader)))
                    self._check_rows(found[-1])
                self._expected_receipts.append(loader.receipt())
            self._expected_stats = loader.stats()
        return found

    def _check_rows(self, expected: list[Outcome]) -> None:
        """The reference itself is held against what can be said without a loader."""
        scenario = self._scenario
        rows = [each.rows for each in expected]
        if scenario.stream:
            if rows != stream_rows(scenario):
                self._account.find(
                    "disordered", f"undisturbed streams gave {rows}, not {stream_rows(scenario)}"
                )
        elif not (scenario.drop_last or scenario.raises or scenario.nones):
            flat = [row for each in rows for row in each]
            if sorted(flat) != list(range(scenario.rows)):
                self._account.find("lost", "without workers not every row came exactly once")


def stream_rows(scenario: Scenario) -> list[tuple[int, ...]]:
    """The rows of each batch in torch's order: round-robin over the streams that go on; a row that raises ends its batch."""
    workers = max(1, scenario.num_workers)
    turns = [
        iter(_stream_batches(scenario, stream_indices(scenario.kind, scenario.rows, worker, workers)))
        for worker in range(workers)
    ]
    batches: list[tuple[int, ...]] = []
    while turns:
        for turn in list(turns):
            batch = next(turn, None)
            if batch is None:
                turns.remove(turn)
            else:
                batches.append(batch)
    return batches


def _stream_batches(scenario: Scenario, indices: range) -> list[tuple[int, ...]]:
    batches: list[tuple[int, ...]] = []
    size = scenario.batch_size or 1
    rows = iter(indices)
    if scenario.on_bad_sample != "raise":  # a stream goes on to the next good row
        rows = (row for row in indices if row not in scenario.raises | scenario.nones)
    while True:
        batch: list[int] = []
        for row in islice(rows, size):
            if row in scenario.raises:
                batches.append((row,))
                break
            batch.append(row)
        else:
            if len(batch) == size or (batch and not scenario.drop_last):
                batches.append(tuple(batch))
            if len(batch) < size:
                return batches


def _loader(scenario: Scenario, dataset: Any) -> Any:
    return stoker.DataLoader(
        dataset,
        **_data_options(scenario),
        num_workers=scenario.num_workers,
        executor=scenario.executor,
        multiprocessing_context=scenario.start if scenario.executor == "process" else None,
        persistent_workers=scenario.persistent,
        prefetch_factor=scenario.prefetch_factor,
        in_order=scenario.in_order,
        split_batches=scenario.split,
        restarts=_RESTARTS,
        name=f"soak {scenario.seed}",
    )


def _reference(scenario: Scenario, dataset: Any) -> Any:
    if not (scenario.stream and scenario.num_workers):
        return stoker.DataLoader(dataset, **_data_options(scenario))
    process = scenario.executor == "process"
    return stoker.DataLoader(
        dataset,
        **_data_options(scenario),
        num_workers=scenario.num_workers,
        executor=scenario.executor,
        multiprocessing_context="fork" if process else None,
        persistent_workers=True,
    )


def _data_options(scenario: Scenario) -> dict[str, Any]:
    return {
        "batch_size": scenario.batch_size,
        "shuffle": scenario.shuffle or None,
        "drop_last": scenario.drop_last,
        "rng": scenario.rng,
        "on_bad_sample": scenario.on_bad_sample,
        "collate_fn": collate_ragged if scenario.kind == "ragged" else None,
    }


def _epoch_seed(scenario: Scenario, number: int, twin: int) -> int:
    return (scenario.seed * 64 + 2 * number + twin) % 2**32
