"""Ray Train with two workers, on ``stoker.integrations.ray`` and on torch's loader. All cases share one cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.packages import needs
from tests.warm import environment

needs("ray.train.torch")

BOUND_S = 140
"""How long the cluster may take; it only bounds a failure."""

SCRIPT = """
import json, sys
from pathlib import Path
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

def loop(folder):
    import torch
    import stoker
    from ray.train.torch import prepare_data_loader as rays
    from stoker.integrations.ray import prepare_data_loader as ours
    from tests.frameworks.samples import Numbers, NumberStream, numbers

    def epochs(loader):
        seen = []
        for epoch in range(2):
            if hasattr(loader.sampler, "set_epoch"):
                loader.sampler.set_epoch(epoch)
            seen += [numbers(batch) for batch in loader]
        return seen


    rank = ray.train.get_context().get_world_rank()
    told = {}
    for shuffle in (False, True):
        options = {"batch_size": 4, "shuffle": shuffle, "num_workers": 1}
        kept = ours(stoker.DataLoader(Numbers(26), name="mine", executor="thread", **options))
        told[f"ours {shuffle}"] = epochs(kept)
        told[f"torch {shuffle}"] = epochs(rays(torch.utils.data.DataLoader(Numbers(26), **options)))
        inner = getattr(kept, "_dataloader", kept)
        told[f"kind {shuffle}"] = [type(inner).__module__, inner.name, inner.executor]
    auto = ours(stoker.DataLoader(Numbers(26), batch_size=4, num_workers="auto"))
    told["auto"] = epochs(auto)
    stream = ours(stoker.DataLoader(NumberStream(10), batch_size=4, num_workers=0))
    told["stream"] = epochs(stream)

    data = Numbers(24)
    sampler = stoker.ElasticDistributedSampler(data, seed=3)
    first = ours(stoker.DataLoader(data, batch_size=2, sampler=sampler))
    iterator = iter(first)
    told["first"] = [numbers(next(iterator)) for _ in range(3)]
    state = first.state_dict()
    told["state"] = state
    again = ours(stoker.DataLoader(data, batch_size=2, sampler=stoker.ElasticDistributedSampler(data, seed=3)))
    again.load_state_dict(state)
    told["rest"] = [numbers(batch) for batch in again]

    from tests.frameworks import accelerator
    handed = accelerator.load()
    brought = ours(stoker.DataLoader(Numbers(26), batch_size=4, num_workers=1, device=accelerator.NAME))
    told["brought"] = []
    for batch in brought:
        handed.note(batch)
        told["brought"].append(numbers(batch.cpu()))
    told["memory"] = [handed.filled, handed.used]
    (Path(folder["folder"]) / f"{rank}.json").write_text(json.dumps(told))

from tests.ray.turns import starting
with starting():
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
TorchTrainer(
    loop, train_loop_config={"folder": sys.argv[1]}, scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path=sys.argv[1]),
).fit()
ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.timeout(145)
def test_two_workers(tmp_path: Path) -> None:
    import stoker
    from tests.frameworks.samples import Numbers, flat, numbers

    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0"),
        timeout=BOUND_S,
    )
    assert ran.returncode == 0, ran.stderr
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for each in ranks:
        for shuffle in (False, True):
            assert each[f"ours {shuffle}"] == each[f"torch {shuffle}"]
            assert each[f"kind {shuffle}"] == ["stoker.loader", "mine", "thread"]
        assert each["auto"] == each["ours False"]
        assert each["brought"] == each["auto"][: len(each["brought"])]
        assert len(each["brought"]) == 4
        assert each["memory"][0] == each["memory"][1]  # Ray makes no second copy
        assert each["stream"] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] * 2
    parts = [batch for each in ranks for batch in (*each["first"], *each["rest"])]
    assert sorted(flat(parts)) == list(range(24))
    data = Numbers(24)  # and on one rank, without Ray
    alone = stoker.DataLoader(
        data, batch_size=2, sampler=stoker.ElasticDistributedSampler(data, 1, 0, seed=3)
    )
    alone.load_state_dict(ranks[0]["state"])
    rest = [numbers(batch) for batch in alone]
    assert sorted(flat(rest) + flat([batch for each in ranks for batch in each["first"]])) == list(range(24))
