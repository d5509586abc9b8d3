"""Training scripts as people write them, whose bottleneck was put there. ``text`` writes one; it runs for some seconds.

A script has a *form* (its model and loop) and a *bottleneck* (its dataset and loader). Thresholds of verdicts were tuned on bare
loops (``benchmarks.workloads``) and on the form ``bare``, which is like them; on the other forms nothing was tuned.
"""

from __future__ import annotations

from typing import NamedTuple

_HEAD = """
import fcntl
import os
import random
import socket
import sys
import time

import numpy as np
import stoker
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset

torch.set_num_threads(1)
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
"""

_ROWS = {
    "image": """
def row(index):
    return torch.full((3, 32, 32), index % 255 / 255.0), index % 10
""",
    "tokens": """
def row(index):
    return (torch.arange(64) * 31 + index) % 1000, index % 10
""",
}

_DATASET = """

class Rows(Dataset):
    def __init__(self, count=1_000_000):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        cost(index)
        return row(index)
"""

_COMPUTE = '''

def cost(index):
    """Pure Python, as a decoder that nobody wrote in C."""
    total = 0
    for number in range(%d):
        total += number & index
    return total
'''

_WAIT = '''

def cost(index):
    """A file on a slow disk."""
    time.sleep(%s)
'''

_FREE = """

def cost(index):
    pass
"""


class Bottleneck(NamedTuple):
    """``code`` makes the samples cost something, ``loader`` is the call. ``first`` are codes of which one must come first."""

    name: str
    code: str
    loader: str
    first: frozenset[str]
    quota: bool = False
    """Whether it runs in a cgroup that may use a third of a CPU."""


def _loader(more: str, batch: int = 16) -> str:
    return f"DataLoader(Rows(), batch_size={batch}, {more})"


BOTTLENECKS = {
    each.name: each
    for each in (
        Bottleneck("none", _FREE, _loader("shuffle=True, num_workers=1"), frozenset({"", "not-data"})),
        Bottleneck(
            "no-workers",
            _WAIT % "0.004",
            _loader("shuffle=True, num_workers=0"),
            frozenset({"more-workers", "use-threads"}),
        ),
        Bottleneck(
            "too-few",
            _WAIT % "0.006",
            _loader("shuffle=True, num_workers=1"),
            frozenset({"more-workers", "use-threads"}),
        ),
        Bottleneck(
            "decode",
            _COMPUTE % 60_000,
            _loader("shuffle=True, num_workers=2"),
            frozenset({"cheaper-samples", "more-workers"}),
        ),
        Bottleneck(
            "too-many",
            _COMPUTE % 60_000,
            _loader("shuffle=True, num_workers=12"),
            frozenset({"fewer-workers", "cheaper-samples"}),
        ),
        Bottleneck(
            "lock",
            """

def cost(index):
    \"\"\"One reader at a time, whichever process it is in.\"\"\"
    with open(__file__) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(0.003)
""",
            _loader("shuffle=True, num_workers=4"),
            frozenset({"slow-reads"}),
        ),
        Bottleneck(
            "collate",
            _FREE
            + """

def slow_collate(rows):
    time.sleep(0.12)
    return torch.utils.data.default_collate(rows)
""",
            _loader("shuffle=True, num_workers=1, collate_fn=slow_collate"),
            frozenset({"more-workers", "slow-reads", "use-threads"}),
        ),
        Bottleneck(
            "sampler",
            _FREE
            + """

class Weighted(Sampler):
    def __iter__(self):
        for index in range(1_000_000):
            total = 0
            for number in range(20_000):
                total += number & index
            yield index

    def __len__(self):
        return 1_000_000
""",
            _loader("num_workers=2, sampler=Weighted()"),
            frozenset({"slow-sampler"}),
        ),
        Bottleneck(
            "start-up",
            _FREE
            + """

def load_index(worker):
    time.sleep(0.8)
""",
            "DataLoader(Rows(160), batch_size=16, shuffle=True, num_workers=2, worker_init_fn=load_index)",
            frozenset({"persistent-workers", "slow-start"}),
        ),
        Bottleneck(
            "stragglers",
            """

def cost(index):
    time.sleep(0.4 if index % 61 == 7 else 0.001)
""",
            _loader("num_workers=4", batch=8),
            frozenset({"slow-samples", "any-order", "deeper-window"}),
        ),
        Bottleneck(
            "objects",
            _FREE
            + """

class Box:
    def __init__(self, place):
        self.place = place

    def __setstate__(self, state):
        self.place = state["place"]
        self.corners = [float(self.place + at) for at in range(8)]

def with_boxes(rows):
    images, labels = torch.utils.data.default_collate(rows)
    return images, labels, [Box(at) for at in range(20_000)]
""",
            _loader("shuffle=True, num_workers=2, collate_fn=with_boxes"),
            frozenset({"heavy-batches"}),
        ),
        Bottleneck(
            "gil",
            _COMPUTE % 40_000,
            _loader('shuffle=True, num_workers=4, executor="thread"').replace(
                "DataLoader(", "stoker.DataLoader(", 1
            ),
            frozenset({"use-processes"}),
        ),
        Bottleneck(
            "quota",
            _COMPUTE % 20_000,
            _loader("shuffle=True, num_workers=2"),
            frozenset({"cpu-quota"}),
            quota=True,
        ),
        Bottleneck(
            "threads",
            """

LEFT = torch.randn(300, 300)

def cost(index):
    return LEFT @ LEFT

def all_threads(worker):
    torch.set_num_threads(8)
""",
            _loader("shuffle=True, num_workers=4, worker_init_fn=all_threads"),
            frozenset({"threads-per-worker", "fewer-workers", "cheaper-samples"}),
        ),
    )
}

_MODELS = {
    "image": """

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, width, 3), nn.Conv2d(width, width, 3)
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        x = F.max_pool2d(F.relu(self.first(images)), 2)
        return self.head(F.relu(self.second(x)).mean((2, 3)))
""",
    "tokens": """

class Net(nn.Module):
    def __init__(self, depth=1, width=32):
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        layer = nn.TransformerEncoderLayer(width, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)).mean(1))
""",
}

_LOOPS = {
    "bare": """

def main():
    loader = {loader}
    model = Net(WIDE)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        for images, labels, *_ in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if time.monotonic() > until:
                break
""",
    "accumulate": """

def main():
    loader = {loader}
    validation = DataLoader(Rows(64), batch_size=16)
    model = Net(WIDE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    until, step = time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        for images, labels, *_ in loader:
            (F.cross_entropy(model(images), labels) / 4).backward()
            step += 1
            if step % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
            if step % 100 == 0:
                with torch.no_grad():
                    print(sum(float(F.cross_entropy(model(x), y)) for x, y in validation))
            if time.monotonic() > until:
                break
""",
    "pair": """

def main():
    loader = {loader}
    unlabelled = DataLoader(TensorDataset(torch.rand(4096, *row(0)[0].shape)), batch_size=16, shuffle=True)
    model = Net(WIDE)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        for (images, labels, *_), (others,) in zip(loader, unlabelled):
            loss = F.cross_entropy(model(images), labels) + 0.1 * model(others.to(images.dtype)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if time.monotonic() > until:
                break
""",
    "ranks": """

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(rank, port):
    torch.multiprocessing.set_start_method("fork", force=True)  # as in ranks of torchrun: else workers are spawned like this rank
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    loader = {loader}
    model = DistributedDataParallel(Net(WIDE))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    until = time.monotonic() + SECONDS
    over = torch.zeros(())
    while not over:
        for images, labels, *_ in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            over.fill_(time.monotonic() > until)
            dist.broadcast(over, 0)
            if over:
                break
    dist.destroy_process_group()


def main():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(train, (port,), nprocs=2)
""",
    "lightning": """

import logging
import warnings

import lightning as L

logging.getLogger("lightning").setLevel(logging.ERROR)
warnings.simplefilter("ignore")


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net(WIDE)

    def training_step(self, batch, number):
        images, labels, *_ = batch
        return F.cross_entropy(self.net(images), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def main():
    loader = {loader}
    L.Trainer(
        accelerator="cpu", max_time={{"seconds": int(SECONDS)}}, max_epochs=1000, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    ).fit(Module(), loader)
""",
    "trainer": """

import transformers
from transformers import Trainer, TrainerCallback, TrainingArguments

transformers.logging.set_verbosity_error()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net(WIDE)

    def forward(self, images, labels):
        logits = self.net(images)
        return {{"loss": F.cross_entropy(logits, labels), "logits": logits}}


class Clock(TrainerCallback):
    def on_train_begin(self, *_, **__):
        self.until = time.monotonic() + SECONDS

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = time.monotonic() > self.until


def named(rows):
    images, labels, *_ = torch.utils.data.default_collate(rows)
    return {{"images": images, "labels": labels}}


class OwnLoader(Trainer):
    def get_train_dataloader(self):
        return {loader}


def main():
    arguments = TrainingArguments(
        os.environ.get("TMPDIR", "/tmp") + "/trainer-out", max_steps=1_000_000, report_to=[], save_strategy="no", use_cpu=True,
        disable_tqdm=True, logging_strategy="no", remove_unused_columns=False,
    )
    OwnLoader(Model(), arguments, train_dataset=Rows(), callbacks=[Clock()]).train()
""",
}


class Form(NamedTuple):
    """A model and a loop. ``seen``: verdicts were tuned on such scripts."""

    name: str
    rows: str
    loop: str
    wide: int
    """Of the model: how long its step is."""
    seen: bool = False


FORMS = {
    each.name: each
    for each in (
        Form("bare", "image", "bare", 8, seen=True),
        Form("transformer", "tokens", "bare", 1),
        Form("accumulate", "image", "accumulate", 16),
        Form("pair", "image", "pair", 8),
        Form("ranks", "image", "ranks", 8),
        Form("lightning", "image", "lightning", 8),
        Form("trainer", "image", "trainer", 8),
    )
}


def text(form: Form, bottleneck: Bottleneck) -> str:
    """The script. Without a bottleneck in the data, the model is a large one."""
    loader = bottleneck.loader
    if form.loop == "trainer":
        if "collate_fn=" in loader:
            loader = loader.replace("collate_fn=slow_collate", "collate_fn=slow_named")
        else:
            loader = loader[:-1] + ", collate_fn=named)"
    wide = form.wide * (12 if bottleneck.name == "none" else 1)
    parts = [_HEAD, f"WIDE = {wide}", _ROWS[form.rows], bottleneck.code, _DATASET, _MODELS[form.rows]]
    parts.append(_LOOPS[form.loop].format(loader=loader))
    if "slow_named" in loader:
        parts.append("\n\ndef slow_named(rows):\n    time.sleep(0.12)\n    return named(rows)\n")
    return "".join(parts) + '\n\nif __name__ == "__main__":\n    main()\n'
