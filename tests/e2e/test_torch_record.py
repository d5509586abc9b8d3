"""What is recorded of torch's own loader: real loaders, real workers, and everything a script may do to them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torch.utils.data import dataloader as torch_dataloader
from torch.utils.data._utils import pin_memory as torch_pinning
from torch.utils.data._utils import worker as torch_worker

from stoker._record import journal, recorder
from stoker._record.schema import STEP_COLUMNS, LoaderRecord
from stoker._record.step_buffer import StepBuffer
from stoker._tools.profile.torch_loader import install
from stoker._tools.report.verdict.cache_advice import fetch_ns
from tests.compat.samples import Squares

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

Steps = list[dict[str, int]]


@pytest.fixture
def measured() -> Iterator[None]:
    install.install()
    yield
    install.uninstall()


def records() -> list[LoaderRecord]:
    """Of the loaders so far, in their order."""
    found = [each.record() for each in recorder.live() if each.engine == "torch"]
    return [each.loaders[0] for each in sorted(found, key=lambda each: each.run.began_ns)]


def only() -> tuple[LoaderRecord, Steps]:
    [record] = records()
    return record, steps(record)


def steps(record: LoaderRecord) -> Steps:
    return [dict(zip(STEP_COLUMNS, row, strict=True)) for row in zip(*record.steps.values(), strict=True)]


class Numbers(Dataset[Any]):
    """Rows that sleep: on any machine longer than the shortest time that the record keeps for a row."""

    def __init__(self, length: int = 24) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.0005)
        return index, 1


class Stream(IterableDataset[Any]):
    """Shares of unequal length."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        yield from range(3 if info is None or info.id else 7)


class Fragile(Numbers):
    """Raises for one row."""

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise ValueError("row five")
        return index


class Mortal(Numbers):
    """Kills its worker."""

    def __getitem__(self, index: int) -> Any:
        if index == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


class Outer(Dataset[Any]):
    """Iterates a loader in every row."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return sum(1 for _ in DataLoader(Numbers(3)))


def consistent(rows: Steps) -> bool:
    """Whether moments of tickets with workers run forwards."""
    return all(
        moments == sorted(moments) and moments[0] > 0
        for row in rows
        for moments in (
            [row[name] for name in ("received_ns", "fetched_ns", "collated_ns", "sent_ns", "given_ns")],
            [row[name] for name in ("asked_ns", "got_ns", "planned_ns", "given_ns")],
        )
    )


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("persistent", [False, True])
def test_every_batch_of_workers_is_a_row(persistent: bool) -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, persistent_workers=persistent)
    for _ in range(2):
        assert len(list(loader)) == 6
    record, rows = only()
    assert (record.engine, record.executor, record.site) == ("torch", "process", f"{site_of(loader)}")
    assert record.dataset == f"{__name__}.Numbers"
    assert (record.options["num_workers"].value, record.options["num_workers"].why) == (2, "given")
    assert (record.options["prefetch_factor"].value, record.options["prefetch_factor"].why) == (2, "default")
    assert (record.totals.epochs, record.totals.steps, record.totals.rows) == (2, 12, 48)
    assert record.totals.window == 4
    assert [(row["epoch"], row["seq"], row["worker"], row["rows"]) for row in rows] == [
        (epoch, seq, seq % 2, 4) for epoch in (1, 2) for seq in range(6)
    ]
    assert consistent(rows)
    assert all(row["ready"] == (row["sent_ns"] <= row["asked_ns"]) for row in rows)
    assert all(0 <= row["depth"] <= 4 for row in rows)
    assert record.slowest
    assert all(each.index == 4 * each.seq + each.row for each in record.slowest)
    assert {each.worker for each in record.workers} == {0, 1}
    assert sum(each.ns for each in record.blame) == pytest.approx(record.totals.wait_ns, rel=0.01)


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("workers", [0, 1])
def test_the_forecast_of_a_cache_knows_how_many_samples_there_are_and_how_large(workers: int) -> None:
    loader: Any = DataLoader(Numbers(), batch_size=4, num_workers=workers)
    for _ in range(2):
        list(loader)
    record, _ = only()
    assert (record.samples, record.sample_bytes) == (24, 16)  # two whole numbers of eight bytes
    assert (fetch_ns(record) or 0) > 300_000


@pytest.mark.usefixtures("measured")
def test_a_stream_has_no_number_of_samples() -> None:
    list(DataLoader(Stream(), batch_size=2))
    assert only()[0].samples is None


def site_of(loader: Any) -> str:
    """The line of the call in the test above."""
    assert loader is not None
    source = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(source, 1) if "persistent_workers=persistent)" in text)
    return f"{os.path.relpath(__file__)}:{line}"


@pytest.mark.usefixtures("measured")
def test_without_workers_the_parent_makes_the_batches() -> None:
    list(DataLoader(Numbers(), batch_size=4))
    record, rows = only()
    assert (record.executor, record.totals.steps, record.totals.rows) == ("inline", 6, 24)
    assert {row["worker"] for row in rows} == {-1}
    assert consistent(rows)
    assert record.slowest
    assert all(each.index == 4 * each.seq + each.row for each in record.slowest)
    assert {each.stage for each in record.blame} >= {"fetch", "collate", "start"}


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("in_order", [False, True])
def test_streams_end_where_their_workers_do(in_order: bool) -> None:
    loader = DataLoader(Stream(), batch_size=2, num_workers=2, in_order=in_order)
    for _ in range(2):
        assert sum(len(batch) for batch in loader) == 10
    _, rows = only()
    by_worker = {worker: sorted(row["rows"] for row in rows if row["worker"] == worker) for worker in (0, 1)}
    assert by_worker == {0: [1, 1, 2, 2, 2, 2, 2, 2], 1: [1, 1, 2, 2]}
    assert consistent(rows)


@pytest.mark.usefixtures("measured")
def test_epochs_that_were_left_do_not_shift_the_next() -> None:
    loader = DataLoader(Numbers(), batch_size=2, num_workers=2, persistent_workers=True)
    for _ in range(3):
        iterator = iter(loader)
        next(iterator)
        next(iterator)
    assert len(list(loader)) == 12
    record, rows = only()
    assert (record.totals.epochs, len(rows)) == (4, 18)
    assert [row["seq"] for row in rows] == [0, 1] * 3 + list(range(12))
    assert consistent(rows)
    assert all(row["depth"] <= 4 for row in rows)


@pytest.mark.usefixtures("measured")
def test_errors_and_deaths_are_events() -> None:
    iterator = iter(DataLoader(Fragile(), batch_size=4, num_workers=1))
    next(iterator)
    with pytest.raises(ValueError, match="row five"):
        next(iterator)
    assert len(list(iterator)) == 4
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        list(DataLoader(Mortal(), batch_size=4, num_workers=1, collate_fn=list))
    fragile, mortal = records()
    assert [each.kind for each in fragile.events] == ["error"]
    assert (
        fragile.events[0].reason == "ValueError: row five (Caught ValueError in DataLoader worker process 0)"
    )
    assert [row["seq"] for row in steps(fragile)] == [0, 1, 2, 3, 4, 5]
    assert steps(fragile)[1]["collated_ns"] == 0  # there was an error in its place
    assert [each.kind for each in mortal.events] == ["worker_died"]
    assert (fragile.totals.worker_deaths, mortal.totals.worker_deaths) == (0, 1)


class Interrupting(Dataset[Any]):
    """Ctrl-C reaches the training process while a worker makes row 6, or while it does so itself."""

    def __init__(self) -> None:
        self.asked, self.over = multiprocessing.Event(), multiprocessing.Event()

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 6:
            if get_worker_info() is None:
                raise KeyboardInterrupt
            self.asked.wait(60)
            while Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[0] != "S":
                os.sched_yield()  # until it waits for this batch
            os.kill(os.getppid(), signal.SIGINT)
            self.over.wait(60)
        time.sleep(0.001)  # long enough for its rows to be timed
        return index


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("workers", "place"),
    [
        (0, "the training process is on dataset index 6"),
        (1, "worker 0 is on dataset index 6"),
    ],
)
def test_a_wait_that_is_interrupted_names_the_index(workers: int, place: str) -> None:
    dataset = Interrupting()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        iterator = iter(DataLoader(dataset, batch_size=4, num_workers=workers))
        next(iterator)
        dataset.asked.set()
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
    finally:
        dataset.over.set()
        signal.signal(signal.SIGINT, before)
    record, rows = only()
    assert [(each.kind, each.reason) for each in record.events] == [("interrupted", place)]
    assert [row["seq"] for row in rows] == [0]
    assert record.totals.worker_deaths == 0


@pytest.mark.usefixtures("measured")
def test_a_wait_that_no_batch_came_of_counts_once() -> None:
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        list(DataLoader(Mortal(), batch_size=4, num_workers=1, collate_fn=list))
    iterator = iter(DataLoader(Fragile(), batch_size=4, num_workers=1))
    next(iterator)
    with pytest.raises(ValueError, match="row five"):
        next(iterator)
    mortal, fragile = records()
    assert any((each.stage, each.cause) == ("fetch", "unknown") for each in mortal.blame)
    assert sum(each.ns for each in mortal.blame) == mortal.totals.wait_ns
    for record in (mortal, fragile):
        totals = record.totals
        assert totals.wait_ns + totals.step_ns <= totals.wall_ns * 1.01


@pytest.mark.usefixtures("measured")
def test_loaders_in_workers_leave_no_record_and_those_in_the_parent_one_for_their_line() -> None:
    list(DataLoader(Outer(), num_workers=1))
    assert [each.dataset for each in records()] == [f"{__name__}.Outer"]
    list(DataLoader(Outer()))
    outer, again, inner = records()
    assert (outer.executor, again.executor, inner.dataset) == ("process", "inline", f"{__name__}.Numbers")
    assert (inner.totals.epochs, inner.totals.steps) == (4, 12)


@pytest.mark.usefixtures("measured")
def test_a_loader_that_is_made_for_every_epoch_goes_on_in_its_record() -> None:
    for _ in range(3):
        list(DataLoader(Numbers(4), batch_size=2))
    record, _ = only()
    assert (record.totals.epochs, record.totals.steps) == (3, 6)


@pytest.mark.usefixtures("measured")
def test_two_iterators_at_a_time() -> None:
    loader = DataLoader(Numbers(8), batch_size=2, num_workers=1)
    assert len(list(zip(loader, loader, strict=True))) == 4
    record, rows = only()
    assert (record.totals.epochs, record.totals.steps) == (2, 8)
    assert consistent(rows)


@pytest.mark.usefixtures("measured")
def test_an_iterator_that_somebody_else_made_is_waited_for() -> None:
    made: Any = torch_dataloader._MultiProcessingDataLoaderIter(
        DataLoader(Numbers(8), batch_size=2, num_workers=1)
    )
    assert len(list(made)) == 4
    record, rows = only()
    assert record.totals.steps == 4
    assert {row["received_ns"] for row in rows} == {0}


@pytest.mark.usefixtures("measured")
def test_pinning_is_a_stage_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an accelerator that is only said to be there."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cpu"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda _: None)
    monkeypatch.setattr(torch_pinning, "pin_memory", lambda batch, device=None: ("pinned", batch))
    batches = list(DataLoader(Numbers(8), batch_size=2, num_workers=1, pin_memory=True))
    assert [batch[0] for batch in batches] == ["pinned"] * 4
    record, rows = only()
    assert len(rows) == 4
    assert consistent(rows)
    assert "pin" in {each.stage for each in record.blame}
    assert sum(each.ns for each in record.blame) == pytest.approx(record.totals.wait_ns, rel=0.01)


@pytest.mark.usefixtures("measured")
def test_iterators_that_others_derived_are_waited_for() -> None:
    class Theirs(torch_dataloader._BaseDataLoaderIter):
        def __init__(self, loader: Any, extra: int = 0) -> None:
            super().__init__(loader)

        def _next_data(self) -> Any:
            return self._next_index()

    class Loader(DataLoader[Any]):
        def _get_iterator(self) -> Any:
            return Theirs(self)

    loader = Loader(Numbers(8), batch_size=2)
    assert [list(loader) for _ in range(2)] == [[[0, 1], [2, 3], [4, 5], [6, 7]]] * 2
    record, rows = only()
    assert (record.totals.epochs, record.totals.steps) == (2, 8)
    assert {row["received_ns"] for row in rows} == {0}


@pytest.mark.usefixtures("measured")
def test_spawned_workers_tell_as_much() -> None:
    list(DataLoader(Squares(8), batch_size=2, num_workers=1, multiprocessing_context="spawn"))
    record, rows = only()
    assert record.options["start_method"].value == "spawn"
    assert [(row["seq"], row["worker"], row["rows"]) for row in rows] == [(seq, 0, 2) for seq in range(4)]
    assert consistent(rows)


def test_a_forked_child_has_records_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_RECORD", str(tmp_path))
    install.install()
    loader = DataLoader(Numbers(8), batch_size=2)
    iterator = iter(loader)
    next(iterator)
    child = os.fork()
    if child == 0:
        try:
            assert len(list(iterator)) == 3  # the parent's, unmeasured
            list(loader)
            install.uninstall()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert len(list(iterator)) == 3
    install.uninstall()
    found = {int(path.name.split("-")[0]): journal.read(path) for path in tmp_path.iterdir()}
    assert {pid: record.loaders[0].totals.steps for pid, record in found.items()} == {
        os.getpid(): 4,
        child: 4,
    }


def test_workers_of_a_short_run_are_weighed_before_they_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_RECORD", str(tmp_path))
    install.install()
    assert len(list(DataLoader(Numbers(8), batch_size=2, num_workers=1))) == 4
    install.uninstall()
    (path,) = tmp_path.iterdir()
    (found,) = journal.read(path).loaders
    assert 0 in found.memory["worker"]
    assert (found.workers[0].private_bytes or 0) > 0


def test_what_is_uninstalled_is_as_it_was() -> None:
    before = [dict(vars(each)) for each in CLASSES]
    install.install()
    iterator = iter(DataLoader(Numbers(8), batch_size=2))
    next(iterator)
    install.install()
    install.uninstall()
    install.uninstall()
    assert [dict(vars(each)) for each in CLASSES] == before
    assert len(list(iterator)) == 3


CLASSES: list[Any] = [
    DataLoader,
    torch_dataloader._BaseDataLoaderIter,
    torch_dataloader._SingleProcessDataLoaderIter,
    torch_dataloader._MultiProcessingDataLoaderIter,
    torch_worker,
]


def test_an_instrument_that_fails_is_unplugged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install.install()
    monkeypatch.setattr(StepBuffer, "write", [].__getitem__)  # C: what it raises counts as ours
    for workers in (0, 1):
        caplog.clear()
        assert len(list(DataLoader(Numbers(8), batch_size=2, num_workers=workers))) == 4
        assert [each.getMessage() for each in caplog.records] == [
            "a loader is not measured any further: TypeError: list indices must be integers or slices, not StepRow"
        ]
    install.uninstall()


def test_what_a_signal_handler_raises_in_our_midst_is_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(*_: Any) -> None:
        raise TimeoutError("time is up")

    install.install()
    iterator = iter(DataLoader(Numbers(8), batch_size=2))
    monkeypatch.setattr(StepBuffer, "write", handler)
    with pytest.raises(TimeoutError):
        next(iterator)
    monkeypatch.undo()
    assert len(list(iterator)) == 3
    install.uninstall()
