"""Batches on the hostile device, with breaks, kills, forks and failures; each compared. A leg of the soak, and a test.

    life of a loader:  options drawn ─► epochs ─► closed, or dropped ─► nothing may be left
    epoch:             order of the device drawn ─► batches, used in many ways ─► exhausted, broken off, raised, dropped elsewhere

The seed decides everything but the scheduling of threads and processes. Each batch is another choice of rows, so a slot that is
written too early, or a buffer that is given away too early, has other bytes than expected.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset, Sampler

import stoker
from stoker._runtime.device.host_registers import HOST_REGISTERS, HostRegister
from stoker.errors import LoaderClosed
from tests.fake_device import NAME, FakeDevice
from tests.fake_device.control import Order

ROWS, BATCH_ROWS, LONGEST_EPOCH = 97, 4, 60
ORDERS: tuple[Order, ...] = ("prompt", "late", "others_first", "random")
_RESTARTS = 1000
_PATIENCE_S = 5.0


class Patterns(Dataset[dict[str, torch.Tensor]]):
    """Rows that differ in every part."""

    def __init__(self, width: int) -> None:
        numbers = torch.arange(ROWS * width, dtype=torch.int64).reshape(ROWS, width)
        self.bytes = (numbers * 31 % 251).to(torch.uint8)
        self.values = (numbers[:, : width // 8] * 17 % 10_007).to(torch.float32)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"bytes": self.bytes[index], "values": self.values[index], "index": torch.tensor(index)}

    def batch(self, rows: list[int]) -> dict[str, torch.Tensor]:
        """What a batch of these rows has to be."""
        return {"bytes": self.bytes[rows], "values": self.values[rows], "index": torch.tensor(rows)}


class Draws(Sampler[list[int]]):
    """Other rows in every batch of every epoch. ``order`` is what the last iterator was given."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self.batches = 0
        self.order: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        self.order = [[self._dice.randrange(ROWS) for _ in range(BATCH_ROWS)] for _ in range(self.batches)]
        return iter(self.order)

    def __len__(self) -> int:
        return self.batches


class Sums(NamedTuple):
    """Checksums that kernels computed of a batch, or will, and those that are right."""

    seen: list[torch.Tensor]
    right: list[torch.Tensor]


class Outcome(NamedTuple):
    """What a stress run came to: how often each thing happened, and everything that was wrong."""

    batches: int
    happened: Counter[str]
    findings: list[str]


def stress(fake: FakeDevice, batches: int, seed: int, *, processes: bool = True) -> Outcome:
    """Run loaders until this many batches have come. Without ``processes`` there are no kills, and every run is alike."""
    return _Stress(fake, Random(seed), processes).run(batches)


class _Stress:
    """One run, on one thread."""

    def __init__(self, fake: FakeDevice, dice: Random, processes: bool) -> None:
        HOST_REGISTERS[NAME] = HostRegister(fake.register_host, fake.unregister_host)
        self._fake = fake
        self._dice = dice
        self._processes = processes
        self._sets = [Patterns(width) for width in (800, 6000, 40_000)]
        self._other_stream = torch.Stream(NAME)
        self._batches = 0
        self._happened: Counter[str] = Counter()
        self._findings: list[str] = []
        self._sums: deque[Sums] = deque()
        self._held: deque[tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]] = deque()
        self._children: list[int] = []

    def run(self, batches: int) -> Outcome:
        """Live one loader's life after another, until all of it has happened."""
        wanted = {"forked", "broken off", *(("killed",) if self._processes else ())}
        while (self._batches < batches or not wanted <= set(self._happened)) and not self._findings:
            self._life()
        return Outcome(self._batches, self._happened, self._findings)

    def _life(self) -> None:
        dice, fake = self._dice, self._fake
        data, draws = dice.choice(self._sets), Draws(Random(dice.random()))
        refused = dice.choice(("nothing",) * 6 + ("registering", "registering and pinning"))
        fake.fail_registrations(0 if refused == "nothing" else None)
        fake.fail_pinning(None if refused == "registering and pinning" else 0)
        options: dict[str, Any] = {"device": NAME, "device_prefetch": dice.randrange(4)}
        if refused == "nothing" and dice.random() < 0.2:
            options = {"pin_memory": True}
        workers = dice.choice((1, 2, 2))
        loader = stoker.DataLoader(
            data,
            batch_sampler=draws,
            num_workers=workers,
            executor="process" if self._processes else "thread",
            prefetch_factor=dice.choice((1, 2, 4)),
            persistent_workers=dice.random() < 0.5,
            restarts=_RESTARTS,
            **options,
        )
        self._happened[f"loader, {'pinned' if 'pin_memory' in options else 'device'}, {refused} refused"] += 1
        known = len(self._findings)
        for _ in range(dice.randrange(1, 5)):
            self._epoch(loader, data, draws)
        if dice.random() < 0.7:
            self._check_slots(loader, draws)
        if dice.random() < 0.7:
            loader.close()
        del loader
        self._check()
        self._check_nothing_left()
        if len(self._findings) > known:
            self._findings.append(f"the loader had {workers} workers, {options}, and {refused} was refused")

    def _epoch(self, loader: Any, data: Patterns, draws: Draws) -> None:
        dice = self._dice
        self._fake.order(
            dice.choice(ORDERS),
            delay_s=dice.choice((0.002, 0.02, 0.1)),
            queries=dice.choice((1, 10, 1000)),
            seed=dice.randrange(1 << 30),
        )
        draws.batches = dice.randrange(1, LONGEST_EPOCH)
        if dice.random() < 0.3:
            consumer = torch.Stream(NAME) if dice.random() < 0.2 else self._other_stream
            # It reads checksums that an earlier epoch's stream may not have computed yet.
            consumer.wait_stream(torch.accelerator.current_stream())
            with consumer:
                self._read(loader, data, draws)
            torch.accelerator.current_stream().wait_stream(consumer)
        else:
            self._read(loader, data, draws)
        for pid in self._children:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if code:
                self._findings.append(f"a forked child ended with {code}: the loader did not refuse it")
        self._children.clear()

    def _read(self, loader: Any, data: Patterns, draws: Draws) -> None:
        dice = self._dice
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            self._batches += 1
            self._use(batch, data.batch(draws.order[number]))
            del batch
            if dice.random() < 0.1:
                self._check(keep=dice.randrange(4))
            chance = dice.random()
            if chance < 0.02 and self._processes:
                self._kill(iterator)
            elif chance < 0.03:
                self._fork(iterator)
            elif chance < 0.04:
                self._happened["broken off"] += 1
                return
            elif chance < 0.045:
                self._happened["dropped on another thread"] += 1
                box = [iterator]
                del iterator
                thread = threading.Thread(target=box.clear)
                thread.start()
                thread.join()
                return
            elif chance < 0.05:
                self._happened["closed in mid-epoch"] += 1
                loader.close()
                return
        self._happened["exhausted"] += 1

    def _use(self, batch: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
        """Read the batch with kernels, now or later, on this stream or another; or hold it; or drop it unread."""
        dice, fake = self._dice, self._fake
        if batch["index"].device.type != NAME:  # pinned: copied by the user, and dropped at once
            if not batch["bytes"].is_pinned():
                self._findings.append("a batch of pin_memory=True is not pinned")
            batch = {name: each.to(NAME, non_blocking=True) for name, each in batch.items()}
        how = dice.choice(("kernel", "kernel", "kernel", "other stream", "hold", "drop", "compare"))
        self._happened[how] += 1
        if how == "kernel":
            if dice.random() < 0.1:
                fake.occupy(dice.choice((0.1, 1, 5)))
            self._sums.append(Sums([fake.checksum(each) for each in batch.values()], self._sums_of(right)))
        elif how == "other stream":
            stream = self._other_stream
            stream.wait_stream(torch.accelerator.current_stream())
            with stream:
                seen = [fake.checksum(each) for each in batch.values()]
            for each in batch.values():
                each.record_stream(stream)
            for each in seen:
                each.record_stream(torch.accelerator.current_stream())
            torch.accelerator.current_stream().wait_stream(stream)
            self._sums.append(Sums(seen, self._sums_of(right)))
        elif how == "hold":
            self._held.append((batch, right))
        elif how == "compare":
            self._compare(batch, right)

    def _sums_of(self, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        return [self._fake.checksum(each) for each in batch.values()]

    def _compare(self, batch: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
        wrong = [name for name in right if not torch.equal(batch[name].cpu(), right[name])]
        if wrong:
            rows = f"rows {batch['index'].cpu().tolist()}, not {right['index'].tolist()}"
            self._findings.append(f"batch {self._batches}: wrong bytes in {', '.join(wrong)}; {rows}")

    def _check(self, keep: int = 0) -> None:
        """Look at what was computed and at what was held, oldest first; leave some of each for later."""
        while len(self._sums) > keep:
            sums = self._sums.popleft()
            if [each.item() for each in sums.seen] != [each.item() for each in sums.right]:
                self._findings.append(f"about batch {self._batches}: a kernel saw wrong bytes")
        while len(self._held) > keep:
            self._compare(*self._held.popleft())

    def _kill(self, iterator: Any) -> None:
        alive = [worker for worker in iterator._workers if worker.pid is not None and worker.is_alive()]
        if alive:
            self._happened["killed"] += 1
            os.kill(self._dice.choice(alive).pid, signal.SIGKILL)

    def _fork(self, iterator: Any) -> None:
        """A child that has the loader, touches it, and drops everything, while copies are in flight."""
        self._happened["forked"] += 1
        sleep_s = self._dice.choice((0.0, 0.005, 0.03))
        pid = os.fork()
        if pid:
            self._children.append(pid)
            return
        code = 3
        try:
            time.sleep(sleep_s)
            try:
                next(iterator)
                code = 1
            except StopIteration:
                code = 0
            except LoaderClosed as error:
                code = 0 if "forked this process" in str(error) else 2
            self._held.clear()
            self._sums.clear()
            gc.collect()
        finally:
            os._exit(code)

    def _check_slots(self, loader: Any, draws: Draws) -> None:
        """When nothing of a batch is left and every copy is done, no slot is leased, or will not be after the next epochs."""
        self._check()
        self._fake.order("prompt")
        draws.batches = 2
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            torch.accelerator.synchronize()
            leaked_bytes = loader.stats()["memory"]["leased_bytes"]
            if not leaked_bytes:
                return
            if time.monotonic() > deadline_s:
                self._findings.append(f"leaked slots: {leaked_bytes} bytes")
                return
            for _ in loader:
                self._batches += 1
                torch.accelerator.synchronize()  # before the call that ends the epoch, which looks for copies that are done
            gc.collect()

    def _check_nothing_left(self) -> None:
        fake = self._fake
        torch.accelerator.synchronize()
        deadline_s = time.monotonic() + _PATIENCE_S
        while left := self._left():
            if time.monotonic() > deadline_s:
                self._findings.append(f"left when the loader was gone: {left}")
                break
            gc.collect()
            time.sleep(0.01)
        self._findings += fake.violations()

    def _left(self) -> dict[str, int]:
        counters = self._fake.counters()
        names = ("registrations", "live_blocks", "pinned_blocks", "events")
        return {name: count for name in names if (count := getattr(counters, name))}
