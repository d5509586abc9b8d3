"""Every worker, or every epoch, draws the same random numbers.

What it finds
-------------
The same samples are made in two workers and two epochs, seeded as torch seeds them. A sample that varies within a worker, but
whose variations are the same in both workers or in both epochs, repeats its randomness. The generator that it draws from is
named.

Why it hurts
------------
torch gives each worker another seed, and each epoch another base seed, but only to the generators of `torch`, `random`
and `numpy.random`. A generator that lies on the dataset, in a module or in OpenCV is copied with its state: N workers
draw the same numbers, and without `persistent_workers` every epoch begins with them again. Training sees a fraction of
the augmentation it was meant to see, and nothing says so. A `worker_init_fn` with a fixed seed does the same.

Example
-------
```python
class Pictures(Dataset):
    def __init__(self, images):
        self.images = images
        self.rng = numpy.random.default_rng(0)          # copied into every worker

    def __getitem__(self, i):
        return augment(self.images[i], self.rng.random())
```

Fix
---
Draw from `torch.rand` or `numpy.random`, which torch seeds in each worker, or reseed the dataset's own generator:

```python
def seed_worker(worker_id):
    info = torch.utils.data.get_worker_info()
    info.dataset.rng = numpy.random.default_rng(info.seed)

DataLoader(dataset, num_workers=4, worker_init_fn=seed_worker)
```

With `persistent_workers=True` the function runs once, and the generators go on from epoch to epoch. stoker's loader seeds
generators that lie on the dataset, and OpenCV's, from the place of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.randomness import RandomnessFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.probes.random_source import RandomSource

_SURE = 8
"""So many draws that differ are not equal by chance, also where there are only two outcomes."""

_RESEED = {
    "numpy.Generator": "{name}.bit_generator.state = type({name}.bit_generator)({seed}).state",
    "numpy.RandomState": "{name}.seed({seed} % 2**32)",
    "torch.Generator": "{name}.manual_seed({seed})",
    "random.Random": "{name}.seed({seed})",
    "cv2": "cv2.setRNGSeed({seed} % 2**31)",
}
"""How a generator is seeded where it stands: others may hold it too."""

_STATEMENTS = 8
_APART = 1000
"""Between the seeds of two generators: those of workers are 1 apart."""


def examine(randomness: RandomnessFacts, target: TargetFacts) -> Iterator[Finding]:
    """Only what really repeats: that a generator is stored says nothing by itself."""
    if randomness.verdict != "repeated":
        return
    own = [source for source in randomness.sources if source.reach != "global"]
    if not own and not randomness.own_init and len(randomness.indices) * randomness.times < _SURE:
        return
    cause = own[0] if own else randomness.sources[0] if randomness.sources else None
    handled = cause is not None and cause.reach in ("stored", "library", "global")
    if target.loader.engine == "stoker" and handled:
        return
    yield CHECK.finding(
        f"{_seen(randomness, target.stream)}: {_origin(cause, randomness.own_init)}",
        _advice(cause, randomness.own_init),
        severity=_severity(cause, randomness),
        where=cause.name if cause else None,
        edit=_edit(own, target),
        numbers={
            "indices": len(randomness.indices),
            "times": randomness.times,
            "workers_equal": int(randomness.workers_equal),
            "epochs_equal": int(randomness.epochs_equal),
            "generator": cause.kind if cause else None,
        },
    )


def _seen(randomness: RandomnessFacts, stream: bool) -> str:
    where = {
        (True, True): "in 2 workers and 2 epochs",
        (True, False): "in 2 workers",
        (False, True): "in 2 epochs of the same worker",
    }[randomness.workers_equal, randomness.epochs_equal]
    what = "the first items of the stream" if stream else counted(len(randomness.indices), "sample")
    return (
        f"{what} made {randomness.times} times varied within a worker, "
        f"and the variations were the same {where}"
    )


def _origin(cause: RandomSource | None, own_init: bool) -> str:
    if cause is None:
        return "no generator was used, so this may be a counter or a cache"
    if cause.reach == "global":
        by = "worker_init_fn gives it" if own_init else "the dataset itself gives it"
        return f"they come from {cause.name}, and {by} a seed that does not change"
    if cause.reach == "library":
        return "they come from OpenCV's own generator, which every worker inherits unchanged and torch does not seed"
    held = (
        "lies on the dataset"
        if cause.reach == "stored"
        else f"lies outside of the dataset, in a {cause.reach},"
    )
    return f"they come from {cause.name} ({cause.kind}), which {held} and is copied into workers as it stands"


def _advice(cause: RandomSource | None, own_init: bool) -> str:
    if cause is None:
        return "Make sure that what varies is meant to be the same in every worker; else draw from torch or numpy.random."
    if cause.reach == "global" and own_init:
        return "Seed from torch.initial_seed() in worker_init_fn, which differs by worker and epoch, or leave it out."
    if cause.reach == "global":
        return "Do not seed within __getitem__ or __init__ of the dataset."
    return "Seed it in every worker from get_worker_info().seed, or draw from torch.rand instead."


def _severity(cause: RandomSource | None, randomness: RandomnessFacts) -> str:
    if cause is None:
        return "low"
    return "high" if randomness.workers_equal else "moderate"


def _edit(own: list[RandomSource], target: TargetFacts) -> Edit | None:
    """Every worker seeds all of them; those outside of the dataset have no name that holds everywhere."""
    reached = [source for source in own if source.reach in ("stored", "library")][:_STATEMENTS]
    if not reached:
        return None
    statements = ["info = torch.utils.data.get_worker_info()"]
    for number, source in enumerate(reached):
        seed = f"(info.seed + {_APART * number})" if number else "info.seed"
        name = source.name.replace("dataset", "info.dataset", 1)
        statements.append(_RESEED[source.kind].format(name=name, seed=seed))
    return Edit("\n".join(statements), site=target.loader.site or target.file, kind="init")


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Generators on the dataset, and OpenCV's, are seeded for every batch from the place it has in the epoch.",
    examine=examine,
    rows=(12,),
)
