"""Ctrl-C between two bytecodes of the engine: at every place that an epoch comes to, in turn.

    rehearsal: all places of iter(), next(), the end and close ─► per place: play until there, interrupt, carry on as users do

What users do after Ctrl-C: go on with the same iterator, begin anew, resume from the state in another loader, or close. A batch is
delivered or not, and the state knows which: nothing is lost between the two. An iterator that cannot go on says so.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

import stoker
from stoker.errors import Interrupted, LoaderClosed
from tests.soak.account import Account
from tests.soak.accounting import accounted, verified
from tests.soak.interrupter import Interrupt, Place, Rehearsal

ROWS, BATCH = 23, 4
EPOCHS = 3
PER_SCENARIO = {"inline": 200, "thread": 100, "fork": 40}
"""Interrupts in a scenario: fewer where workers have to be started anew after one."""


_LOOP = (
    "/engine/iteration.py", "/engine/iterator.py", "/engine/step_writer.py", "/scheduler/", "/pool/batch_opener.py",
    "/plan/planner.py",
    "/checkpoint/progress.py", "/_receipt/receipt_writer.py", "/_record/step_buffer.py", "/executors/interrupt_guard.py",
)  # fmt: skip


class Noisy(Dataset[Any]):
    """Rows with a number from each global generator, where these are the loader's to seed."""

    def __init__(self, noisy: bool) -> None:
        self.noisy = noisy

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        noise = [torch.rand(()).item(), np.random.rand(), random.random()] if self.noisy else [0.0] * 3
        return torch.tensor([float(index), *noise], dtype=torch.float64)


class _Scenario:
    """One loader and what happens to it. Used once, on the main thread."""

    def __init__(self, seed: int, account: Account, folder: Path) -> None:
        dice = self._dice = Random(seed)
        self._account = account
        self._folder = folder
        self.where = dice.choices(("inline", "thread", "fork"), (6, 3, 1))[0]
        account.where = self.where
        workers = 0 if self.where == "inline" else dice.choice((1, 2))
        self._data: dict[str, Any] = {
            "batch_size": BATCH,
            "shuffle": True,
            "generator": torch.Generator(),
            "drop_last": dice.random() < 0.3,
        }
        self._options: dict[str, Any] = {
            "num_workers": workers,
            "executor": "thread" if self.where == "thread" else "process",
            "persistent_workers": workers > 0 and dice.random() < 0.7,
            "prefetch_factor": dice.choice((1, 2, 4)) if workers else None,
            "on_bad_sample": dice.choice(("raise", "raise", "replace")),
        }
        if self.where == "fork":
            self._options["multiprocessing_context"] = "fork"
        self._dataset = Noisy(noisy=self.where != "thread")
        account.title = f"{self.where}×{workers} {self._options}"
        self._unraisable = 0

    def run(self) -> None:
        reference = stoker.DataLoader(self._dataset, **self._data)
        self._expected = [self._epoch(reference, number) for number in range(EPOCHS)]
        loader = self._loader()
        self._epoch(loader, 0)
        with Rehearsal() as seen:
            self._epoch(loader, 1)
        with Rehearsal() as again:
            self._epoch(loader, 2)
            if self.where != "fork":
                loader.close()
        places = sorted((seen.places | again.places).items(), key=_order)
        if self.where == "fork":
            places = [each for each in places if _in_loop(each[0])]
        first = self._dice.randrange(len(places))
        hook, sys.unraisablehook = sys.unraisablehook, self._swallowed
        try:
            for number in range(PER_SCENARIO[self.where]):
                place, count = places[(first + number) % len(places)]
                self._interrupt(loader, place, self._dice.randint(1, count))
                if self._account.findings:
                    return
        finally:
            sys.unraisablehook = hook
            loader.close()

    def _interrupt(self, loader: Any, place: Place, occurrence: int) -> None:
        """Read an epoch until the interrupt, and then carry on in one of the ways."""
        number = self._dice.randrange(EPOCHS)
        expected = self._expected[number]
        found: list[Any] = []
        iterator: Any = None
        interrupt = Interrupt(place, occurrence, _Scenario.__qualname__)
        state = _generators()
        try:
            self._seed(number)
            with interrupt:
                iterator = iter(loader)
                while True:
                    try:
                        batch = next(iterator)
                    except StopIteration:
                        break
                    found.append(batch.tolist())
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
        self._account.batches += len(found)
        self._account.faults["interrupt"] += interrupt.done
        if found != expected[: len(found)] or not (interrupted or len(found) == len(expected)):
            self._find("altered", f"batches before the interrupt are wrong: {len(found)}", interrupt)
            return
        if self.where == "inline" and not _same(state, _generators()):
            self._find(
                "altered", "the global generators of the training loop are not as they were", interrupt
            )
            return
        if interrupt.done:
            self._carry_on(loader, iterator, number, len(found), interrupted, interrupt)

    def _carry_on(
        self, loader: Any, iterator: Any, number: int, given: int, interrupted: bool, interrupt: Interrupt
    ) -> None:
        how = self._dice.choice(("go on", "again", "resume", "resume", "close"))
        expected = self._expected[number]
        if how == "go on" and interrupted and iterator is not None:
            self._go_on(iterator, expected, given, interrupt)
        elif how == "resume" and interrupted and iterator is not None:
            self._resume(loader, number, given, interrupt)
        elif how == "close":
            loader.close()
        del iterator
        if self._dice.random() < 0.2 and not self._account.findings:
            after = self._dice.randrange(EPOCHS)
            if self._epoch(loader, after) != self._expected[after]:
                self._find("altered", "the epoch after the interrupt is wrong", interrupt)

    def _go_on(self, iterator: Any, expected: list[Any], given: int, interrupt: Interrupt) -> None:
        """The same iterator: it goes on, or says that it cannot. A batch that was being made here may be cut off, as in torch."""
        rest: list[Any] = []
        try:
            rest.extend(batch.tolist() for batch in iterator)
        except (Interrupted, LoaderClosed):
            if rest != expected[given : given + len(rest)]:
                self._find("altered", f"{len(rest)} batches came before the iterator refused", interrupt)
            return
        cut_off = self.where == "inline" and interrupt.making and rest == expected[given + 1 :]
        self._account.batches += len(rest)
        if rest != expected[given:] and not cut_off:
            kind = "lost" if len(rest) < len(expected) - given else "altered"
            self._find(
                kind, f"{len(rest)} of {len(expected) - given} batches came from the iterator", interrupt
            )

    def _resume(self, loader: Any, number: int, given: int, interrupt: Interrupt) -> None:
        """The state says what was handed over; another loader gives the rest, and both receipts are one epoch."""
        state, receipt = loader.state_dict(), loader.receipt()
        other = stoker.DataLoader(self._dataset, **{**self._data, "generator": torch.Generator()})
        other.load_state_dict(state)
        rest = [batch.tolist() for batch in other]
        expected = self._expected[number]
        at = _place_of(rest, self._expected, number)
        self._account.batches += len(rest)
        if rest != expected[given:] and not (given in (0, len(expected)) and at is not None):
            kind = "lost" if len(rest) < len(expected) - given else "duplicated"
            self._find(
                kind, f"after {given} batches the state gave {len(rest)} of {len(expected)}", interrupt
            )
            return
        if 0 < given < len(expected):
            if receipt is None or receipt.batches != given:
                told = None if receipt is None else receipt.batches
                self._find("receipt", f"the receipt tells of {told} batches, and {given} came", interrupt)
            if self._dice.random() < 0.8:
                return  # to read files takes longer than all the rest
            paths = [self._folder / name for name in ("first.receipt", "second.receipt")]
            for path, each in zip(paths, (receipt, other.receipt()), strict=True):
                path.unlink(missing_ok=True)
                assert each is not None
                each.save(path)
            verified(self._account, *paths)

    def _loader(self) -> Any:
        return stoker.DataLoader(self._dataset, **self._data, **self._options)

    def _epoch(self, loader: Any, number: int) -> list[Any]:
        self._seed(number)
        return [batch.tolist() for batch in loader]

    def _seed(self, number: int) -> None:
        self._data["generator"].manual_seed(number)

    def _swallowed(self, unraisable: Any) -> None:
        """An interrupt came while a finalizer ran: Python prints it, and nothing else happens."""
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            self._account.find("raised", f"in a finalizer: {unraisable.exc_value!r} in {unraisable.object!r}")

    def _find(self, kind: str, text: str, interrupt: Interrupt) -> None:
        self._account.find(kind, f"{text}; interrupted at {interrupt.where}")


def play(seed: int) -> Account:
    """Play the scenario of this seed, on the main thread."""
    account = Account(seed)
    with accounted(account) as folder:
        _Scenario(seed, account, folder).run()
    return account


def _in_loop(place: Place) -> bool:
    """Whether the code there belongs to the loop: to plan, wait, open and hand over, and not to start and end processes."""
    file = place.code.co_filename
    return any(part in file for part in _LOOP)


def _order(item: tuple[Place, int]) -> tuple[str, int, int]:
    place = item[0]
    return place.code.co_filename, place.code.co_firstlineno, place.offset


def _place_of(rest: list[Any], epochs: list[list[Any]], number: int) -> int | None:
    """An epoch that had not begun, or was over: the state may also be of the next one, which is drawn later."""
    return 0 if len(rest) == len(epochs[number]) else None


def _generators() -> tuple[Any, ...]:
    return torch.default_generator.get_state(), np.random.get_state(), random.getstate()


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return (
        torch.equal(one[0], other[0])
        and all(np.array_equal(a, b) for a, b in zip(one[1], other[1], strict=True))
        and one[2] == other[2]
    )
