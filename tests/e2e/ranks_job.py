"""A training job of several ranks, started by torchrun: ``-m tests.e2e.ranks_job FOLDER``, which has the legs to run in legs.json.

Every rank writes down the rows of each leg and its state after it. A collective per batch, as in data-parallel training, would wait
for ever if one rank had more batches than another. A leg may be for fewer ranks than the job has: they are a group of their own.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.e2e.ranked import loader, rows


def run(leg: dict[str, Any], folder: Path) -> None:
    """One leg of an epoch: load, take some batches, save."""
    rank, ranks = dist.get_rank(), leg["ranks"]
    group = dist.new_group(list(range(ranks)))
    if rank >= ranks:
        return
    few = {"replicas": ranks, "rank": rank} if ranks < dist.get_world_size() else {}
    train = loader(**leg["loader"], **few)
    if leg["load"] is not None:
        whose = rank if leg["own"] else 0
        train.load_state_dict(json.loads((folder / f"{leg['load']}.{whose}.state").read_text()))
    seen = []
    for batch in itertools.islice(train, leg["batches"]):
        seen += rows(batch)
        count = torch.tensor(len(batch))
        dist.all_reduce(count, group=group)
        assert count.item() == len(batch) * ranks
    (folder / f"{leg['name']}.{rank}.state").write_text(json.dumps(train.state_dict()))
    (folder / f"{leg['name']}.{rank}.rows").write_text(json.dumps(seen))
    dist.barrier(group)


def main() -> None:
    """All legs, one after the other, in one process group."""
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())  # ranks need not agree on anything but the sampler's seed
    for leg in json.loads((folder / "legs.json").read_text()):
        run(leg, folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
