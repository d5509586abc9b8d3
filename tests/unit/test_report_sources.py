"""From files to what a report is about: kinds told by content, runs told apart, damage said in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stoker._record import journal
from stoker._record.schema import RunRecord
from stoker._tools.report.page import sources
from stoker.errors import RecordError
from tests.unit.records import SECOND, loader, run, steps

WAITS_S = {("fetch", 0, "io"): 0.9}
LATER = {"id": "5000-1", "pid": 5000, "began_unix_ns": 1_790_000_100 * SECOND, "began_ns": 107 * SECOND}
TUNING: dict[str, Any] = {
    "format": "stoker-tuning",
    "version": 1,
    "target": "a.py:x",
    "points": [],
    "recommended": {},
}
DIAGNOSIS: dict[str, Any] = {"format": "stoker-diagnosis", "version": 1, "subject": "a.py:x", "findings": []}


def _written(folder: Path, name: str, record: RunRecord | dict[str, Any]) -> Path:
    path = folder / name
    if isinstance(record, RunRecord):
        journal.write(record, path)
    else:
        path.write_text(json.dumps(record, indent=2))
    return path


def test_a_run_that_was_repeated_is_another_and_what_ran_at_once_is_one(tmp_path: Path) -> None:
    first = _written(tmp_path, "a.stoker.json", run(loader(WAITS_S)))
    later = _written(tmp_path, "b.stoker.json", run(loader(WAITS_S), **LATER))
    beside = {**LATER, "began_unix_ns": 1_790_000_001 * SECOND, "began_ns": 8 * SECOND}
    at_once = _written(tmp_path, "c.stoker.json", run(loader(WAITS_S), **beside))
    two = sources.read([later, first])
    assert [each.label for each in two.runs] == ["b", "a"]
    assert [len(each.record.loaders) for each in two.runs] == [1, 1]
    one = sources.read([first, at_once])
    assert [len(each.record.loaders) for each in one.runs] == [2]
    assert one.runs[0].notes == ("2 files are of this one run: a.stoker.json, c.stoker.json.",)
    other = _written(tmp_path, "d.stoker.json", run(loader(WAITS_S), **{**beside, "argv": ["other.py"]}))
    assert len(sources.read([first, other]).runs) == 2


def test_ranks_of_a_job_are_one_run_though_one_of_them_ended_early(tmp_path: Path) -> None:
    ranks = [
        _written(
            tmp_path,
            f"rank{rank}.json",
            run(
                loader(WAITS_S, step_s=0.1),
                id=f"r{rank}",
                pid=4000 + rank,
                rank=rank,
                world_size=2,
                began_unix_ns=(1_790_000_000 + 20 * rank) * SECOND,
                began_ns=(7 + 20 * rank) * SECOND,
            ),
        )
        for rank in range(2)
    ]
    assert len(sources.read(ranks).runs) == 1
    again = _written(tmp_path, "again.json", run(loader(WAITS_S), **LATER, rank=1, world_size=2))
    assert len(sources.read([*ranks, again]).runs) == 2


def test_files_that_bring_two_groups_together_make_one(tmp_path: Path) -> None:
    paths = [
        _written(
            tmp_path,
            f"{place}.json",
            run(
                loader(WAITS_S, step_s=1.0),
                id=str(place),
                pid=place,
                began_unix_ns=int((1_790_000_000 + at) * SECOND),
                began_ns=int((7 + at) * SECOND),
            ),
        )
        for place, at in enumerate((0, 3, 1.5))
    ]
    assert len(sources.read(paths[:2]).runs) == 2
    assert len(sources.read(paths).runs) == 1


def test_names_that_are_the_same_get_their_folders(tmp_path: Path) -> None:
    for name, changed in (("one", {}), ("two", LATER)):
        (tmp_path / name).mkdir()
        _written(tmp_path / name, "run.json", run(loader(WAITS_S), **changed))
    found = sources.read([tmp_path / "one" / "run.json", tmp_path / "two" / "run.json"])
    assert [each.label for each in found.runs] == ["one/run", "two/run"]
    folders = sources.read([tmp_path / "one", tmp_path / "two"])
    assert [each.label for each in folders.runs] == ["one", "two"]


def test_each_kind_is_told_by_what_is_in_it(tmp_path: Path) -> None:
    found = sources.read(
        [
            _written(tmp_path, "a.txt", TUNING),
            _written(tmp_path, "b.txt", run(loader(WAITS_S))),
            _written(tmp_path, "c.txt", DIAGNOSIS),
        ]
    )
    assert (len(found.runs), len(found.tunings), len(found.diagnoses)) == (1, 1, 1)
    assert sources.format_of(tmp_path) == "stoker-run"


def test_a_journal_that_was_cut_off_is_used_and_said_to_be_cut(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    whole = journal.Journal(path)
    whole.append(run(loader(WAITS_S, steps=steps(5)), ended=False))
    assert sources.read([path]).runs[0].notes == ()
    line = path.read_text()
    for left in (40, len(line) // 2, len(line) - 3):
        path.write_text(line + line[:left])
        found = sources.read([path]).runs[0]
        assert len(found.record.loaders[0].steps["seq"]) == 5
        assert found.notes == (
            "run.jsonl was cut off, by the end of the run or a full disk: this is what it had up to then.",
        )
    assert sources.read([tmp_path]).runs[0].notes == found.notes


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b'{"format":"stoker-run","version":1,"run":{"id"', "was cut off, and no line of it is whole"),
        (
            json.dumps({**TUNING, "version": 9}).encode(),
            "of version 9, and this stoker reads up to 1: upgrade stoker",
        ),
        (json.dumps({**TUNING, "version": "1"}).encode(), "does not say its version"),
        (json.dumps({**TUNING, "points": [1]}).encode(), "damaged, so make it again"),
        (json.dumps({**DIAGNOSIS, "findings": [{}]}).encode(), "damaged, so make it again"),
        (json.dumps({**DIAGNOSIS, "findings": 3}).encode(), "damaged, so make it again"),
        (b'{"format": "stoker-tuning", "version": 1}', "has no 'target'"),
        (b'{"format": "stoker-tuning", "version": 1, "tar', "cut off or damaged, so make it again"),
        (b'{"format": "stoker-diagnosis", "x": "\xff"}', "it is not text"),
        (b'{"format": "stoker-verdict"}', "give the record that it is about"),
        (b'{"format": "stoker-demo"}', "give it alone"),
        (b"[" * 100_000, "no run record"),
        (b'{"format": "stoker-tuning", "a": ' + b"[" * 100_000, "damaged, so make it again"),
        (b"\x80\x81\x00\xff", "it is not text"),
    ],
)
def test_what_cannot_be_used_says_what_it_is_and_what_to_do(
    tmp_path: Path, content: bytes, told: str
) -> None:
    path = tmp_path / "given.json"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=str(path)) as error:
        sources.read([path])
    assert told in str(error.value)


def test_what_is_not_there_and_a_folder_without_records_are_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"No such file.*stoker profile"):
        sources.read([tmp_path / "none.json"])
    with pytest.raises(RecordError, match="there is no run record in"):
        sources.read([tmp_path])


def test_numbers_that_cannot_be_reckoned_with_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    for change in (
        lambda data: data["loaders"][0]["totals"].update(wait_ns=10**400),
        lambda data: data["loaders"][0]["totals"].update(wait_histogram=["a"]),
        lambda data: data["loaders"][0]["steps"].update(got_ns=[10**30] * 5),
        lambda data: data["run"].update(argv=3),
        lambda data: data["machine"].update(versions={"torch": 2}),
    ):
        data = run(loader(WAITS_S, steps=steps(5))).as_dict()
        change(data)
        path.write_text(json.dumps(data))
        with pytest.raises(RecordError, match="damaged"):
            sources.read([path])
