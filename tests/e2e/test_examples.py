"""The examples, as a user has them: three that fail with torch's loader, under every start method; five to copy, copied."""

from __future__ import annotations

import pickle
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import pytest
import torch

import stoker
from examples import duel, lambda_transform, large_arrays, opencv_workers
from tests import warm
from tests.fault import rows

DATASETS = {
    "large arrays": lambda: large_arrays.LargeMemoryDataset(3),
    "lambda transform": lambda: lambda_transform.BadPickleDataset(30),
    "OpenCV": lambda: opencv_workers.ImageDataset(30),
}


@pytest.mark.parametrize("method", duel.METHODS)
@pytest.mark.parametrize("name", DATASETS)
def test_it_works_with_stoker(name: str, method: str) -> None:
    dataset: Any = DATASETS[name]()
    got = list(duel.loader_of(dataset, "stoker", method, num_workers=2))
    assert sum(len(batch) for batch in got) == len(dataset)
    if name == "lambda transform":
        assert all(0 <= value <= at for at, value in enumerate(torch.cat(got).tolist()))
    else:
        assert torch.equal(torch.cat(got), torch.stack([_tensor(each) for each in _all(dataset)]))


def _all(dataset: Any) -> list[Any]:
    return [dataset[index] for index in range(len(dataset))]


def _tensor(sample: Any) -> torch.Tensor:
    return torch.as_tensor(sample)


FULL = """
    import sys
    import stoker

    sys.path.insert(0, sys.argv[1])
    from examples import duel, large_arrays

    if __name__ == "__main__":
        try:
            list(duel.loader_of(large_arrays.LargeMemoryDataset(20), "torch", "fork"))
        except RuntimeError as error:
            print(stoker.explain(error).finding.code)
        print(sum(len(batch) for batch in duel.loader_of(large_arrays.LargeMemoryDataset(20), "stoker", "fork")))
        found = stoker.doctor(sys.argv[1] + "/examples/large_arrays.py:loader", select=["STK201"])
        for finding in found.findings:
            print(finding.code, finding.severity, finding.where)
"""


def test_large_arrays_are_diagnosed_where_shared_memory_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's loader runs out of a /dev/shm of 16 MB; the doctor says so before, ``explain`` after; stoker's works."""
    within, refusal = rows.small_shm()
    if refusal:
        pytest.skip(refusal)
    monkeypatch.setenv("EXAMPLE_SIZE", "20")
    told = rows.said(rows.run(FULL, str(warm.ROOT), folder=tmp_path, within=within))
    assert told == ["STK201", "20", "STK201 high /dev/shm"]


def test_a_lambda_is_diagnosed_and_what_torch_says_of_it_explained() -> None:
    (found,) = stoker.doctor("examples/lambda_transform.py:loader", select=["STK102"]).findings
    assert found.where == "dataset.transform"
    failed = pytest.raises((AttributeError, pickle.PicklingError))
    with failed as raised, pytest.warns(UserWarning, match="Got pickle error"):
        list(duel.loader_of(lambda_transform.BadPickleDataset(10), "torch", "spawn", num_workers=1))
    explained = stoker.explain(raised.value).finding
    assert explained is not None
    assert explained.code == "STK102"


def test_threads_of_opencv_are_diagnosed() -> None:
    """On a machine of one CPU OpenCV has one thread."""
    found = stoker.doctor("examples/opencv_workers.py:loader", select=["STK307"]).findings
    assert [(each.code, each.where) for each in found] == [("STK307", "cv2")] * (cv2.getNumThreads() > 1)


@pytest.mark.usefixtures("warm_scripts")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("large_arrays.py", "1 batches with stoker's loader, 1 workers under fork\n"),
        ("lambda_transform.py", "10 batches with stoker's loader, 1 workers under fork\n"),
        (
            "opencv_workers.py",
            "10 batches with stoker's loader, 1 workers under fork\nOpenCV threads in a worker: 1\n",
        ),
    ],
)
def test_they_run_from_any_folder(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLE_SIZE", "2")
    script = str(warm.ROOT / "examples" / name)
    done = warm.run([script, "--engine", "stoker", "--num-workers", "1"], timeout=BOUND_S, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, said), done.stderr


@pytest.mark.usefixtures("warm_scripts")
def test_a_rank_that_nobody_launched_is_told_who_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    done = warm.run([str(warm.ROOT / "examples/ddp_torchrun.py")], timeout=BOUND_S, cwd=tmp_path)
    assert done.returncode == 2
    assert "start it with torchrun" in done.stderr


BOUND_S = 100
"""How long a script may take; it only bounds a failure."""


def started(
    folder: Path, name: str, *arguments: str, launcher: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    """An example, copied into a folder where nothing else is, and run there: in a warm interpreter, or by a launcher."""
    shutil.copy(warm.ROOT / "examples" / name, folder)
    options: dict[str, Any] = {
        "cwd": folder,
        "env": warm.environment(STOKER_PROFILES="off"),
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "start_new_session": True,
    }
    if not launcher:
        return warm.Popen([name, *arguments], **options)
    return subprocess.Popen([sys.executable, *launcher, name, *arguments], text=True, **options)


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    """What it printed."""
    try:
        out, err = process.communicate(timeout=BOUND_S)
    except BaseException:
        process.terminate()  # torchrun ends its ranks
        process.communicate()
        raise
    assert process.returncode == code, out + err
    return out


def percents(said: str) -> list[float]:
    return [float(each) for each in re.findall(r"([\d.]+)%", said)]


@pytest.mark.usefixtures("warm_scripts")
def test_image_classification(tmp_path: Path) -> None:
    said = ended(started(tmp_path, "image_classification.py", "--pictures", "320", "--epochs", "5"))
    before, *epochs = percents(said)
    assert before < 40
    assert epochs[-1] > max(60, before)
    assert re.search(r"train: 50 batches, \d+ workers, waited [\d.]+ s for data", said)
    assert "check: 12 batches" in said


@pytest.mark.usefixtures("warm_scripts")
def test_sample_cache(tmp_path: Path) -> None:
    said = ended(started(tmp_path, "sample_cache.py", "--pictures", "48"))
    assert "cache: 96 hits, 48 misses" in said
    again = ended(started(tmp_path, "sample_cache.py", "--pictures", "48", "--num-workers", "0"))
    sums = [re.findall(r"sum (\d+)", each) for each in (said, again)]
    assert len(sums[0]) == 3
    assert sums[0] == sums[1]  # a cache changes no batch


@pytest.mark.usefixtures("warm_scripts")
def test_a_sample_cache_of_whole_samples(tmp_path: Path) -> None:
    said = ended(started(tmp_path, "sample_cache.py", "--pictures", "48", "--whole"))
    assert "refused" not in said
    assert "cache: 96 hits, 48 misses" in said
    assert len(set(re.findall(r"sum (\d+)", said))) == 1


@pytest.mark.usefixtures("warm_scripts")
def test_ragged_text(tmp_path: Path) -> None:
    said = ended(started(tmp_path, "ragged_text.py", "--texts", "900", "--epochs", "2"))
    shuffled, like_to_like, *epochs = percents(said)
    assert like_to_like < shuffled / 2
    assert epochs[-1] > 95
    assert said.count("of 900 texts") == 2


@pytest.mark.usefixtures("warm_scripts")
def test_iterable_shards(tmp_path: Path) -> None:
    said = ended(started(tmp_path, "iterable_shards.py", "--shards", "4", "--lines", "50"))
    assert "not shared out: 484 lines, 242 of 242 different ones, each 2 times" in said
    assert "every worker reads the whole stream" in said
    assert "\nshared out: 242 lines, 242 of 242 different ones, each 1 times" in said
    assert "gone on with 1: 242 lines, 242 of 242 different ones, each 1 times" in said


def test_ddp_torchrun(tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    arguments = ("--samples", "301", "--sampler", "elastic", "torch")
    said = ended(started(tmp_path, "ddp_torchrun.py", *arguments, launcher=launcher))
    assert said.count("ElasticDistributedSampler, epoch") == 2
    assert said.count("samples: 151 + 151, each of 301 once, 1 to fill up") == 4
    assert said.count("weights and gradients are the same on all ranks") == 4


@pytest.mark.usefixtures("warm_scripts")
def test_resume_after_kill(tmp_path: Path) -> None:
    """All three at once: the one that is killed and goes on, and one that never was stopped."""
    few = ("--samples", "320", "--epochs", "2")
    whole = started(tmp_path, "resume_after_kill.py", "--folder", "whole", *few)
    killed = started(tmp_path, "resume_after_kill.py", "--folder", "run", "--kill-at", "30", *few)
    assert ended(killed, -signal.SIGKILL) == "killed in epoch 1 after step 30\n"
    again = started(tmp_path, "resume_after_kill.py", "--folder", "run", "--num-workers", "0", *few)
    on, digests = ended(again).splitlines()
    assert on == "going on in epoch 1 after step 24"
    assert ended(whole).splitlines() == [digests]
    assert re.fullmatch(r"40 steps; batches [0-9a-f]{16}; weights [0-9a-f]{16}", digests)


def test_the_list_of_examples_is_complete() -> None:
    listed = set(re.findall(r"\((\w+\.py)\)", (warm.ROOT / "examples/README.md").read_text()))
    there = {path.name for path in (warm.ROOT / "examples").glob("*.py")}
    assert listed == there - {"__init__.py", "duel.py"}
