"""What is told of a loader as it is."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

import stoker
from stoker._runtime.simulation.setting import Setting
from stoker._tools.probes.target import Site, imported_at, kept_arguments
from stoker._tools.sandbox.target import subject_of
from stoker._tools.tune.edits import call
from stoker._tools.tune.probes.target import probe

DATA = TensorDataset(torch.zeros(10, 2))


class Whole(IterableDataset):
    def __iter__(self):
        return iter(range(10))


class Shared(Whole):
    def __iter__(self):
        return self.mine(get_worker_info())

    def mine(self, info):
        return iter(range(10))


class Through(Whole):
    def __iter__(self):
        return iter(range(which(), 10))


class Wrapped(Whole):
    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        yield from self.inner


def which():
    info = torch.utils.data.get_worker_info()
    return info.id if info else 0


def told(value, **options):
    return probe(subject_of(value, name="data.py:it", **options))


def test_torchs_loader():
    found = told(
        DataLoader(DATA, batch_size=4, num_workers=3, prefetch_factor=5, multiprocessing_context="spawn")
    )
    assert found.setting == Setting(3, prefetch=5, start_method="spawn", engine="torch")
    assert (found.loader, found.batch_size, found.batches, found.stream) == (True, 4, 3, False)
    assert dict(found.written)["num_workers"] == "3"
    assert dict(found.written)["multiprocessing_context"] == "'spawn'"


def test_stokers_loader_and_what_was_left_open():
    with stoker.DataLoader(
        DATA, batch_size=4, num_workers=2, executor="thread", split_batches=False
    ) as loader:
        found = told(loader)
    assert found.setting == Setting(2, executor="thread", split=False)
    assert told(stoker.DataLoader(DATA)).setting == Setting(0)


def test_a_dataset_stands_for_no_workers():
    found = told(DATA, batch_size=3)
    assert (found.loader, found.setting, found.batch_size, found.batches) == (False, Setting(0), 3, 4)
    assert told(DataLoader(DATA, batch_size=4), batch_size=5).batches == 2


@pytest.mark.parametrize(
    ("stream", "asks"),
    [
        (Whole(), False),
        (Shared(), True),
        (Through(), True),
        (Wrapped(Whole()), False),
        (Wrapped(Shared()), True),
    ],
)
def test_whether_a_stream_shares_itself_out(stream, asks):
    assert told(stream).asks_worker is asks


def test_workers_may_be_given_their_share_when_they_start():
    assert told(DataLoader(Whole(), worker_init_fn=print)).asks_worker


def test_what_no_setting_changes_is_kept_in_the_line_to_paste():
    data = TensorDataset(torch.arange(8))
    shuffled = DataLoader(data, batch_size=2, shuffle=True, drop_last=True, collate_fn=list)
    assert kept_arguments(shuffled) == ("shuffle=True", "drop_last=True", "collate_fn=collate_fn")
    assert kept_arguments(DataLoader(data)) == ()
    line = call(Setting(2), 2, kept=kept_arguments(shuffled))
    assert line.startswith("stoker.DataLoader(dataset, batch_size=2, shuffle=True, drop_last=True, ")


def test_the_import_is_named_by_its_own_line(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import os\nfrom torch.utils.data import DataLoader\n\nloader = DataLoader([1])\n")
    assert imported_at(Site(str(script), 4)) == "train.py:2"
    script.write_text("import torch\nloader = torch.utils.data.DataLoader([1])\n")
    assert imported_at(Site(str(script), 2)) is None
