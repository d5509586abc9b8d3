"""Random numbers of a sample depend on the number of workers.

What it finds
-------------
Samples are random, and what a sample draws depends on which worker makes it; or it draws from something that no seed reaches,
such as `numpy.random.default_rng()` made anew in `__getitem__`.

Why it hurts
------------
torch seeds a worker with base seed + worker number, and a sample takes whatever comes next there. With `torch.manual_seed(0)`
a run can be repeated only with the same `num_workers`; another machine, a resumed run or one more worker gives other samples.
Numbers that no seed reaches cannot be repeated at all.

Example
-------
```python
torch.manual_seed(0)
next(iter(DataLoader(dataset, num_workers=2)))     # one augmentation
torch.manual_seed(0)
next(iter(DataLoader(dataset, num_workers=4)))     # another
```

Fix
---
Where runs have to be comparable, make a generator of the sample from its index and the epoch:
`numpy.random.default_rng((epoch, index))`. stoker's loader gives the same samples for every `num_workers`, 0 included, and
`stoker.generator()` is a generator that belongs to the sample.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, counted
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.randomness import RandomnessFacts
from stoker._tools.doctor.facts.target import TargetFacts


def examine(randomness: RandomnessFacts, target: TargetFacts) -> Iterator[Finding]:
    """Worth knowing where randomness is otherwise sound; more where no seed brings it back."""
    numbers = {"indices": len(randomness.indices), "times": randomness.times}
    what = "the first items" if target.stream else counted(len(randomness.indices), "random sample")
    seen = f"{what} made {randomness.times} times in 2 workers"
    if randomness.verdict == "unseeded":
        yield CHECK.finding(
            f"{seen}: the same worker with the same seed made others the second time; they come from a clock, or from "
            "numbers that no seed brings back",
            "Draw from torch, random or numpy.random, or seed your own generator from the index and the epoch.",
            severity="low",
            numbers=numbers,
        )
    elif randomness.verdict == "healthy" and target.loader.engine == "torch":
        drawn = ", ".join(each.name for each in randomness.sources) or "a seeded generator"
        yield CHECK.finding(
            f"{seen}: what they draw from {drawn} depends on the worker, so it changes with num_workers",
            "Keep num_workers as it is where runs have to be repeated, or use stoker's loader.",
            severity="none",
            numbers=numbers,
        )


CHECK = Check(
    __name__,
    __doc__,
    severity="low",
    prevented="Samples are seeded by their place in the epoch: the same ones for every num_workers, 0 included.",
    examine=examine,
    rows=(48,),
)
