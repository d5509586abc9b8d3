"""Samples are of different types.

What it finds
-------------
Two samples that have different dtypes, kinds of values (a tensor and an array, an int and a float) or keys at the same
place; and arrays of Python objects, which no tensor can hold. It is serious if the loader's own `collate_fn` refuses
them. It is also reported if the batch's dtype depends on which sample comes first.

Why it hurts
------------
Without workers torch promotes types while it stacks. In a worker it stacks into shared memory of the first sample's dtype, and
raises `result type Float can't be cast to the desired output type Long`: the same data works with 0 workers and fails with 1.
Where it does not fail, some batches are int64 and some float64, and a model complains, or silently computes in another precision.

Example
-------
```python
def __getitem__(self, index):
    row = json.loads(self.lines[index])
    return torch.tensor(row["x"])              # [1, 2] is int64, [1.0, 2.5] is float32
```

Fix
---
Say the type where the sample is made: `torch.tensor(row["x"], dtype=torch.float32)`, `float(value)`, the same keys in every dict.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.samples import Difference, SampleFacts, collation
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import COLLATION, LOADER

_WORDS = {"dtype": "dtype", "kind": "type", "keys": "keys"}


def examine(samples: SampleFacts, target: TargetFacts) -> Iterator[Finding]:
    """Differences first, then what no tensor can hold."""
    loader = target.loader
    for each in samples.differences:
        if each.what not in _WORDS or (each.collates and loader.own_collate):
            continue
        if each.collates or (each.what == "dtype" and (loader.engine == "stoker" or not loader.num_workers)):
            if _batched(target):
                yield _found(
                    each, "low", "; a batch has the type that its first sample decides, or a promoted one"
                )
        else:
            severity = "low" if target.assumed else "high"  # a dataset alone may yet get a collate_fn for it
            yield _found(
                each, severity, f"; {collation(target.assumed)} does not take them together in a worker"
            )
    for leaf in samples.leaves:
        if leaf.kind == "array" and leaf.dtype == "object" and not loader.own_collate:
            yield CHECK.finding(
                f"sample{leaf.path} is an array of Python objects (dtype object, shape {leaf.shape}), which no tensor can hold",
                "Make it an array of numbers, or a list if it holds text.",
                where=f"sample{leaf.path}",
                numbers={"dtype": leaf.dtype},
            )


def _batched(target: TargetFacts) -> bool:
    return target.loader.batch_size is not None or bool(target.loader.batch_sampler)


def _found(each: Difference, severity: str, consequence: str) -> Finding:
    return CHECK.finding(
        f"{each.text(_WORDS[each.what])}{consequence}",
        "Give every dict the same keys."
        if each.what == "keys"
        else "Say the type where the sample is made: torch.tensor(value, dtype=torch.float32), float(value).",
        severity=severity,
        where=f"sample{each.path}",
        numbers=each.numbers,
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Collation is the same for every num_workers: dtypes are promoted as they are without workers, and other "
    "mixes raise an error that names key and indices.",
    examine=examine,
    marks=(
        Mark(
            r"samples are of different types|"
            r"^ *(?:[\w.]+: )?sample(?:\[[^\n]{1,80}\])*: key [^\n]{1,80} is missing",
            weight=32,
        ),
        Mark(r"batch must contain [^\n]{1,120}; found (?!<(?:class|type) 'NoneType'>)", weight=28),
        Mark(  # a title, cut off
            r"default_collate: batch must contain [^\n;]{1,120}(?:;|\Z)(?! found)", weight=24
        ),
        Mark(r"can't convert np\.ndarray of type numpy\.object_", also=(COLLATION,), weight=26),
        Mark(
            r"(?:input types|result type \w+) can't be cast to the desired output type",
            also=(COLLATION,),
            weight=26,
        ),
        Mark(
            r"expected Tensor as element \d+ in argument 0, but got (?!NoneType)\w+",
            also=(COLLATION, LOADER),
            weight=24,
        ),
        Mark(
            r"KeyError: ",
            also=(r"in (?:\w*collate\w*|<listcomp>|<dictcomp>)\n[^\n]*\[key\][^\n]*\n(?:[ ~^]*\n)?KeyError",),
            weight=22,
        ),
        Mark(
            r"Expected object of (?:scalar )?type [\w.]+ but got (?:scalar )?type [\w.]+ for (?:sequence element|"
            r"argument)",
            also=(COLLATION, LOADER),
            weight=22,
        ),
        Mark(
            r"must be real number, not \w+|too many dimensions 'str'",
            also=(r"in (?:default_)?collate", LOADER),
            weight=20,
        ),
    ),
    rows=(24,),
)
