"""One iterator, read batch by batch and compared with what is expected of it, bit for bit."""

from __future__ import annotations

import hashlib
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from stoker.errors import NoGoodSample
from tests.compat.compare import mentions_index
from tests.soak.account import Account
from tests.soak.workers.datasets import BadRow
from tests.soak.workers.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one ``next()`` gave: a batch or an error, by the rows it tells of and a digest of every bit."""

    rows: tuple[int, ...]
    digest: str


def outcomes(iterator: Iterator[Any]) -> list[Outcome]:
    """All that an undisturbed iterator gives; a row that raises does not end it."""
    seen = []
    while True:
        try:
            seen.append(outcome_of(next(iterator)))
        except StopIteration:
            return seen
        except (BadRow, NoGoodSample) as error:
            seen.append(failure(error))


def outcome_of(batch: Any) -> Outcome:
    """A batch as an outcome."""
    index = batch["index"]
    rows = index.tolist() if isinstance(index, torch.Tensor) else index
    return Outcome(tuple(rows) if isinstance(rows, list) else (rows,), digest(batch))


def failure(error: BadRow | NoGoodSample) -> Outcome:
    """The error that came in a batch's place as an outcome."""
    if isinstance(error, NoGoodSample):
        return Outcome((), str(error))
    return Outcome((error.index,), "BadRow")


class Reading:
    """Reads one iterator on the thread that plays. After a discrepancy, noted in the account, it reads no further."""

    def __init__(
        self, iterator: Any, expected: list[Outcome], scenario: Scenario, account: Account, name: str
    ) -> None:
        self.iterator = iterator
        self.over = False
        self.taken = 0
        self._expected = expected
        self._left = Counter(expected)
        self._scenario = scenario
        self._account = account
        self._name = name
        self._held: deque[tuple[Any, str]] = deque()

    def step(self) -> None:
        """Take the next batch and check it."""
        try:
            batch = next(self.iterator)
        except StopIteration:
            self.over = True
            self._check_end()
            return
        except (BadRow, NoGoodSample) as error:
            self._account.faults["exception"] += 1
            self._check(failure(error))
            if isinstance(error, BadRow):
                self._check_note(error)
            return
        except Exception:
            self._find("raised", traceback.format_exc())
            return
        self._check(outcome_of(batch))
        self._hold(batch)

    def release(self) -> None:
        """Let go of all batches that are held; each must still be what it was."""
        while self._held:
            self._let_go()

    def _check(self, found: Outcome) -> None:
        place = self.taken
        self.taken += 1
        self._account.batches += 1
        expected = self._expected[place] if place < len(self._expected) else None
        if found == expected or (not self._scenario.in_order and self._left[found] > 0):
            self._left[found] -= 1
            return
        if found.rows not in {each.rows for each in self._expected}:
            kind = "altered"
        elif not any(count for each, count in self._left.items() if each.rows == found.rows):
            kind = "duplicated"
        elif any(each.rows == found.rows and each.digest != found.digest for each in self._expected):
            kind = "altered"
        else:
            kind = "disordered"
        wanted = "the end" if expected is None else f"rows {_short(expected.rows)} ({expected.digest[:8]})"
        self._find(kind, f"batch {place} is rows {_short(found.rows)} ({found.digest[:8]}), not {wanted}")

    def _check_note(self, error: BadRow) -> None:
        """An error names its row, where a single row is to blame. In stoker's own words: its arguments hold the index anyway."""
        if not (self._scenario.stream or self._scenario.kind == "many"):
            named = BaseException()
            named.__notes__ = getattr(error, "__notes__", [])
            if not mentions_index(named, error.index):
                self._find("raised", f"the error of row {error.index} does not name it")

    def _check_end(self) -> None:
        missing = [each.rows for each, count in self._left.items() if count > 0]
        if missing:
            shown = "; ".join(_short(rows) for rows in missing[:3])
            self._find(
                "lost",
                f"the epoch ended after {self.taken} of {len(self._expected)} batches; not seen: {shown}",
            )

    def _find(self, kind: str, text: str) -> None:
        self.over = True
        self._account.find(kind, f"{self._name}: {text}")

    def _hold(self, batch: Any) -> None:
        """Keep a batch for a while, written over if the scenario says so: nobody else may write to it meanwhile."""
        if self._scenario.hold:
            if self._scenario.scribble:
                for tensor in _tensors(batch):
                    tensor.fill_(1)
            self._held.append((batch, digest(batch)))
            if len(self._held) > self._scenario.hold:
                self._let_go()

    def _let_go(self) -> None:
        batch, before = self._held.popleft()
        if digest(batch) != before:
            self._account.find("altered", f"{self._name}: a batch changed while it was held")


def digest(value: Any) -> str:
    """A digest of structure, types and every bit."""
    state = hashlib.blake2b(digest_size=12)
    _feed(state, value)
    return state.hexdigest()


def _feed(state: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        state.update(repr((value.dtype, value.shape, value.stride())).encode())
        state.update(value.contiguous().numpy().tobytes())
    elif isinstance(value, np.ndarray):
        state.update(repr((value.dtype, value.shape)).encode())
        state.update(value.tobytes())
    elif isinstance(value, dict):
        state.update(repr(list(value)).encode())
        for each in value.values():
            _feed(state, each)
    elif isinstance(value, list | tuple):
        state.update(f"{type(value).__name__} {len(value)}".encode())
        for each in value:
            _feed(state, each)
    else:
        state.update(repr(value).encode())


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def _short(rows: tuple[int, ...]) -> str:
    text = ", ".join(map(str, rows[:6]))
    return f"[{text}, … {len(rows)} in all]" if len(rows) > 6 else f"[{text}]"
