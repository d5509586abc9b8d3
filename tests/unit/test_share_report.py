"""The dry run of share: its figures are those of the real thing, and its text fits a terminal."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

import stoker
from stoker._sharing import dry_run
from stoker._sharing.report import ShareEntry, ShareReport, human
from tests.unit.test_share_walk import Files, words


def test_the_figures_are_those_of_the_segment() -> None:
    names = words(3000)
    dataset = Files(
        names=names,
        again=names,
        table=dict.fromkeys(names, 1.5),
        array=np.arange(50_000),
        tensor=torch.zeros(30_000),
    )
    before = {name: id(value) for name, value in vars(dataset).items()}
    report = stoker.share(dataset, report=True)
    assert {name: id(value) for name, value in vars(dataset).items()} == before
    by_path = {entry.path.removeprefix("dataset."): entry for entry in report.entries}
    assert {path: entry.action for path, entry in by_path.items()} == dict.fromkeys(
        ("names", "table", "array", "tensor"), "packed"
    )
    assert by_path["names"].also == ("dataset.again",)
    assert (by_path["names"].type, by_path["names"].items) == ("list", 3000)
    assert by_path["array"].bytes_before == by_path["array"].bytes_after == 400_000
    assert by_path["tensor"].bytes_after == 120_000
    objects = by_path["names"].bytes_before + by_path["table"].bytes_before
    assert report.saved_bytes_per_worker == objects
    assert report.saved_bytes_in_shipment == 520_000
    stoker.share(dataset)
    size: Any = dataset.names._segment.nbytes
    assert abs(size - report.shared_bytes) < 1024  # alignment between the parts


def test_the_text_fits_a_hundred_columns_and_is_honest_about_arrays() -> None:
    dataset = Files(
        a_rather_long_name_for_an_attribute={"with": {"more": {"inside": words(3000)}}},
        array=np.arange(50_000), kept=np.array(words(), object),
    )  # fmt: skip
    text = str(stoker.share(dataset, report=True))
    assert max(map(len, text.splitlines())) <= 100
    assert "Under fork sharing arrays saves nothing" in text
    assert "tolist" in text
    assert "['inside']" in text
    assert str(stoker.share(Files(), report=True)) == "share: nothing large enough to share was found"


def test_many_alike_are_one_line() -> None:
    dataset = Files(by_class={f"class {number}": words() for number in range(5)}, other=words())
    report = stoker.share(dataset, report=True)
    assert len(report.entries) == 6
    lines = str(report).splitlines()
    assert len([line for line in lines if "by_class" in line]) == 1
    assert "dataset.by_class[…] × 5" in str(report)
    assert "list[10000]" in str(report)


def test_it_can_be_written_as_json() -> None:
    report = stoker.share(Files(names=words()), report=True)
    told = json.loads(json.dumps(report.as_dict()))
    assert told["entries"][0]["path"] == "dataset.names"
    assert told["saved_bytes_per_worker"] == report.saved_bytes_per_worker > 0


def test_very_large_containers_are_judged_by_a_sample(monkeypatch: Any) -> None:
    monkeypatch.setattr(dry_run, "_SAMPLED", 1000)
    monkeypatch.setattr(dry_run, "_SAMPLE", 500)
    names = [f"{number:08}" for number in range(5000)]
    dataset = Files(names=names, fixed=tuple(names), table=dict.fromkeys(names, 1), every=set(names))
    report = stoker.share(dataset, report=True)
    assert [entry.about for entry in report.entries] == [True] * 4
    assert 5000 * 8 < report.entries[0].bytes_after < 5000 * 16
    assert "One shared copy: about" in str(report)
    assert "~" in str(report)


def test_sizes_for_people() -> None:
    assert [human(nbytes) for nbytes in (0, 1023, 1536, 5 << 20, 3 << 40)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 MiB", "3072.0 GiB",
    ]  # fmt: skip


def test_a_refusal_is_in_the_table() -> None:
    entry = ShareEntry("dataset.x", "list", 3, "", 99, 0, "refused", "because " * 40)
    text = str(ShareReport((entry,)))
    assert "refused" in text
    assert "Nothing would be packed." in text
    assert max(map(len, text.splitlines())) <= 100
