"""Pages that are not about a check."""

from __future__ import annotations

import ast
import inspect
import subprocess
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import stoker
from stoker._tools.tune.result import Tuning
from tests.docs.blocks import blocks_of, text_of
from tests.docs.guides.guide import Names, Steps, guide


@guide("docs/auto.md")
def auto(names: Names) -> Steps:
    yield
    loader = names["loader"]
    for batch in loader:
        names["train"](batch)
    yield
    assert isinstance(loader.num_workers, int)
    told = text_of("docs/auto.md")
    assert [key for key in loader.stats()["tuning"] if f"`{key}`" not in told] == []
    loader.close()


@guide("docs/exports.md")
def exports(names: Names) -> Steps:
    """At any free port: the one that the page names may be taken here."""
    from prometheus_client import REGISTRY

    from stoker.exports import prometheus

    at = prometheus.serve
    vars(prometheus)["serve"] = lambda port: at(0)
    yield
    yield
    next(iter(names["loader"]))
    assert any(each.name.startswith("stoker_") for each in REGISTRY.collect())
    yield
    assert list(Path("runs").rglob("events.out.tfevents*"))


@guide("docs/memory.md")
def memory(names: Names) -> Steps:
    class MyDataset(list[Any]):
        def __init__(self, _: object) -> None:
            super().__init__(range(8))

    names.update(MyDataset=MyDataset, train_set=range(8), val_set=range(8))
    yield
    for _ in range(3):
        yield
    images = names["Images"]()
    images.decoded = {1: 2}
    images.__stoker_trim__()
    assert images.decoded == {}
    iterator = iter(names["loader"])
    next(iterator)
    yield
    told = next(each.source for each in blocks_of("docs/memory.md") if "budget_reason" in each.source)
    shown, real = ast.literal_eval(told), names["loader"].stats()["memory"]
    assert shown.keys() == real.keys()
    assert real["budget_bytes"] <= 2 << 30
    assert shown["workers"][0].keys() == real["workers"][0].keys()
    names["loader"].close()


@guide("docs/randomness.md")
def randomness(names: Names) -> Steps:
    names.update(read=np.asarray, flip=np.negative)
    yield
    photos = names["Photos"]()
    photos.paths, photos.transform = [[1.0, 2.0, 3.0]], np.abs
    made = []
    for workers in (0, 1):
        torch.manual_seed(0)
        made += list(stoker.DataLoader(photos, sampler=[0], num_workers=workers))
    assert made[0].equal(made[1])
    yield
    names["seed_worker"](0)


@guide("docs/ranks.md")
def ranks(names: Names) -> Steps:
    """One rank, over gloo."""
    import torch.distributed as dist

    begin = dist.init_process_group
    store = torch._C._distributed_c10d.FileStore("store", 1)
    vars(dist)["init_process_group"] = lambda backend: begin("gloo", store=store, rank=0, world_size=1)
    saved: list[Any] = []
    names.update(checkpoint=None, first_epoch=0, save=saved.append)
    yield
    assert len(saved) == 2
    dist.destroy_process_group()
    names.update(train_indices=[1, 3], class_weights=torch.ones(10), labels=torch.zeros(48, dtype=torch.long))
    yield


@guide("docs/record.md")
def record(names: Names) -> Steps:
    from stoker._record import journal
    from tests.unit.records import loader, run

    Path("runs").mkdir()
    journal.write(run(loader({("fetch", 0, "io"): 0.6})), Path("runs/a.jsonl"))
    yield


@guide("docs/resume.md")
def resume(names: Names) -> Steps:
    """``tests/resume/test_docs.py`` stops these programs at many places."""
    names["time_to_save"] = lambda: True
    yield
    assert torch.load("run.pt")["epoch"] == 1
    names["loader"].close()
    yield
    shards = names["Shards"](3)
    assert (list(shards), list(shards)) == ([0, 1, 2], [0, 1, 2])
    yield
    Path("a").write_text("1\n2\n")
    assert list(names["Lines"](["a"])) == ["1", "2"]
    names["loader"] = stoker.DataLoader(names["dataset"])
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
    yield
    yield
    data = names["Data"]()
    data.loader = names["loader"]
    data.load_state_dict(data.state_dict())
    assert data.train_dataloader() is names["loader"]


@guide("docs/tune.md")
def tune(names: Names) -> Steps:
    """Tunings made by hand: a real one takes a minute. ``tests/e2e/test_tune_command.py`` and ``test_tune.py`` have real ones."""
    from stoker._tools.tune.forms.data import render
    from tests.unit.tuning.tunings import tuning

    made = tuning()
    vars(subprocess)["run"] = lambda command, **_: SimpleNamespace(stdout=render(made))
    yield
    assert names["loader"].num_workers == made.recommended.workers
    signature = inspect.signature(stoker.tune)

    def quick(*given: Any, **more: Any) -> Tuning:
        signature.bind(*given, **more)
        return made

    vars(stoker)["tune"] = quick
    yield
