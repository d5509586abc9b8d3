"""What a target may be, what is said of one that is none, and that it is loaded as a script would be, but not run as one."""

from __future__ import annotations

import sys
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import stoker
from stoker._tools.doctor.probes import target as target_probe
from stoker._tools.sandbox.server import packed, unpacked
from stoker._tools.sandbox.subject import ASSUMED_BATCH, Subject
from stoker._tools.sandbox.target import load, subject_of, user_stack
from stoker.errors import TargetError

SCRIPT = """
import sys
from beside import rows
from torch.utils.data import DataLoader, Dataset

class Pictures(Dataset):
    def __len__(self):
        return len(rows)
    def __getitem__(self, index):
        return rows[index]

dataset = Pictures()
arguments = sys.argv[1:]
class Bag:
    def loader(self):
        return DataLoader(dataset, batch_size=4)
bag = Bag()
def both():
    return {"train": DataLoader(dataset, batch_size=4, shuffle=True), "validation": DataLoader(dataset, 8)}
def broken():
    raise KeyError("no such split")
if __name__ == "__main__":
    raise SystemExit("it was run as a script")
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A script whose name has a colon, with a module beside it. What loading leaves in this process is undone."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["pytest", "--of", "pytest"])
    for name in ("beside", "my:data"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "beside.py").write_text("rows = list(range(10))")
    (tmp_path / "my:data.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    return "my:data.py"


def test_a_file_is_loaded_under_its_own_name_beside_its_neighbours(script: str) -> None:
    subject = load(f"{script}:dataset")
    assert (type(subject.dataset).__module__, subject.loader) == ("my:data", None)
    assert subject.arguments["batch_size"] == ASSUMED_BATCH
    assert list(subject.indices()) == list(range(10))
    assert load(f"{script}:arguments").dataset == []
    assert load(f"{script}:bag.loader").arguments["batch_size"] == 4


def test_the_first_of_several_loaders_is_the_subject(script: str) -> None:
    subject = load(f"{script}:both", num_workers=3)
    assert (subject.arguments["batch_size"], subject.arguments["num_workers"]) == (4, 3)
    assert [each.batch_size for each in subject.others] == [8]
    told = target_probe.probe(subject)
    assert (told.kind, told.dataset_class, told.length) == ("loader", "my:data.Pictures", 10)
    assert (told.loader.num_workers, told.loader.shuffle, told.loader.batches) == (3, True, 3)
    assert told.file is not None
    assert "def both" in told.source


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("data.py", "names no object"),
        ("my:dat.py:dataset", "there is no file my:dat.py: did you mean my:data.py?"),
        ("my:data.py:datast", "has no 'datast': did you mean dataset or Dataset?"),
        ("my:data.py:zzz", "has no 'zzz': it has rows, Pictures, dataset"),
        ("my:data.py:dataset.zzz", "my:data.py.dataset has no 'zzz'"),
        ("my:data.py:sys", "is a module: wanted is a Dataset"),
        ("my:data.py:broken", "raised: KeyError: 'no such split'"),
        ("beside_it:rows", "there is no module 'beside_it'"),
    ],
)
def test_a_wrong_target_gets_one_clear_line(script: str, target: str, words: str) -> None:
    with pytest.raises(TargetError) as raised:
        load(target)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_only_files_are_suggested(script: str) -> None:
    """A folder was suggested in its own place."""
    Path("dat").mkdir()
    with pytest.raises(TargetError, match=r"there is no file \./dat\n"):
        load("./dat:dataset")


def test_a_file_that_does_not_parse_is_told_with_its_line(script: str) -> None:
    Path("torn.py").write_text("rows = [1, 2]\n  more = 3\n")
    with pytest.raises(TargetError, match=r"IndentationError: unexpected indent \(torn\.py, line 2\)"):
        load("torn.py:rows")


def test_the_frames_of_an_error_are_those_of_the_users_file(script: str) -> None:
    with pytest.raises(TargetError) as raised:
        load(f"{script}:broken")
    assert raised.value.stack.splitlines()[0].endswith('my:data.py", line 21, in broken')
    with pytest.raises(OSError, match="nowhere") as missing:
        Path("nowhere").read_text()
    assert "test_target.py" in user_stack(missing.value)
    assert "pathlib" not in user_stack(missing.value)


def test_lists_of_loaders_are_told_from_lists_of_samples() -> None:
    loader: Any = DataLoader(TensorDataset())
    assert subject_of((loader, loader)).others == (loader,)
    assert subject_of([1, 2, 3]).dataset == [1, 2, 3]
    with pytest.raises(TargetError, match="DataLoader"):
        subject_of({"a": 1})


class Numbers(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(10))


def test_indices_come_as_the_sampler_gives_them_without_those_to_avoid() -> None:
    data = list(range(10))
    plain = Subject(data, arguments={"batch_size": 4}, avoid=frozenset({1, 5}))
    assert list(plain.batches()) == [[0, 2, 3, 4], [6, 7, 8, 9]]
    own = Subject(data, arguments={"batch_sampler": [[1, 2], [5], [9]]}, avoid=frozenset({1, 5}))
    assert list(own.batches()) == [[2], [9]]
    unbatched = Subject(data, arguments={"batch_size": None, "sampler": [[1, 2], [3]]})
    assert list(unbatched.indices()) == [[1, 2], [3]]
    assert list(Subject(Numbers(), arguments={"batch_size": 4}).batches()) == []


def test_facts_about_stokers_loader_are_plain_enough_to_travel() -> None:
    rows: Any = [1, 2, 3, 4, 5]
    loader: Any = stoker.DataLoader(rows, batch_size=2, num_workers=2, on_bad_sample="skip")
    told = target_probe.probe(subject_of(loader, batch_size=3))
    assert unpacked(packed(told)) == told
    assert (told.loader.engine, told.loader.on_bad_sample) == ("stoker", "skip")
    assert (told.loader.batch_size, told.loader.batches) == (3, 2)
    assert told.loader.site is not None
    assert told.loader.site.startswith("tests/unit/test_target.py:")
    with pytest.raises(UnpicklingError, match=r"pathlib\.\w+, which is no plain value"):
        unpacked(packed({"path": Path("here")}))
    with pytest.raises(UnpicklingError, match="DataLoader, which is no plain value"):
        unpacked(packed({"class": stoker.DataLoader}))
