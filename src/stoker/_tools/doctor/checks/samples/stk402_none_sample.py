"""The dataset returns None for some samples.

What it finds
-------------
Samples that are None, or have None at a place where others have a value, and that the loader's `collate_fn` does not take.

Why it hurts
------------
The usual way there is an `except: return None` for broken files. torch's collation then raises `batch must contain tensors,
... found NoneType` (older: `Could not infer dtype of NoneType`), without the index, and the epoch ends with the first of them.

Example
-------
```python
def __getitem__(self, index):
    try:
        return read(self.paths[index])
    except OSError:
        return None
```

Fix
---
Find broken samples once and leave them out (`torch.utils.data.Subset(dataset, good)`), or drop them in a `collate_fn`:
`default_collate([row for row in rows if row is not None])`, which makes some batches smaller. stoker's loader does it with one
argument: `on_bad_sample="skip"`, or `"replace"`, which keeps the batch size; both count what they leave out.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import ABOUT_LOADERS, COLLATION, ERROR_LINE, FRAME, LOADER

_SHOWN = 5


def examine(samples: SampleFacts, target: TargetFacts) -> Iterator[Finding]:
    """Whole samples first, then places inside them."""
    loader = target.loader
    stokers = loader.engine == "stoker"
    if samples.nones and not samples.none_collates and not (stokers and loader.on_bad_sample != "raise"):
        shown = ", ".join(map(str, samples.nones[:_SHOWN]))
        more = ", ..." if len(samples.nones) > _SHOWN else ""
        yield CHECK.finding(
            f"{counted(len(samples.nones), 'sample')} of {len(samples.indices)} that were made "
            f"{'is' if len(samples.nones) == 1 else 'are'} None: at index {shown}{more}",
            'Pass on_bad_sample="replace": such samples are replaced and counted.'
            if stokers
            else "Leave them out (torch.utils.data.Subset), or drop them in the collate_fn; or use stoker's loader with "
            'on_bad_sample="replace".',
            severity=_severity(target),
            edit=Edit('on_bad_sample="replace"', site=loader.site, kind="argument") if stokers else None,
            where=f"dataset[{samples.nones[0]}]",
            numbers={"nones": len(samples.nones), "tried": len(samples.indices), "index": samples.nones[0]},
        )
    for each in samples.differences:
        if each.what == "none" and not each.collates:
            index = each.first_index if each.first == "None" else each.second_index
            other, value = (
                (each.second_index, each.second) if each.first == "None" else (each.first_index, each.first)
            )
            yield CHECK.finding(
                f"sample{each.path} is None at index {index} and a {value} at index {other}",
                "Give it a value that stands for nothing (an empty tensor of the same shape, -1), or leave the key out "
                "in a collate_fn.",
                severity=_severity(target),
                where=f"sample{each.path}",
                numbers={"index": index, "other_index": other},
            )


def _severity(target: TargetFacts) -> str:
    """A dataset alone may yet get a collate_fn that drops them."""
    return "low" if target.assumed else "high"


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(r"^ *(?:[\w.]+: )?sample(?:\[[^\n]{1,80}\])*: is None", weight=32),
        Mark(r"batch must contain [^\n]{1,120}; found <(?:class|type) 'NoneType'>", weight=30),
        Mark(r"Could not infer dtype of NoneType", also=(COLLATION,), weight=28),
        Mark(r"Could not infer dtype of NoneType", never=(FRAME,), weight=16),
        Mark(r"expected Tensor as element \d+ in argument 0, but got NoneType", also=(COLLATION,), weight=26),
        Mark(
            r"'NoneType' object (?:is not (?:subscriptable|iterable)|has no attribute)",
            also=(
                (
                    r"(?:in \w*collate\w*|collate\.py\", line \d+, in <\w+>)\n[^\n]*\n(?:[ ~^]*\n)?(?:Type|"
                    r"Attribute)Error: 'NoneType'"
                ),
                LOADER,
            ),
            weight=22,
        ),
        Mark(  # a collate_fn of one's own
            r"\[[^\n]{1,80} for \w+ in (?:batch|samples|data|examples)\]\n(?:[ ~^]*\n)?"
            r"TypeError: 'NoneType' object is not (?:subscriptable|iterable)",
            weight=16,
        ),
        Mark(  # told in words
            r"(?i)\breturn(?:s|ed|er|ing)? `?None\b",
            also=(ABOUT_LOADERS, r"(?i)\b(?:datasets?|__getitem__|collat\w+|samples?)\b"),
            never=(ERROR_LINE,),
            weight=8,
        ),
        Mark(r"new\(\): data must be a sequence \(got NoneType\)", also=(COLLATION,), weight=24),
    ),
    rows=(25,),
)
