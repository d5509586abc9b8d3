"""A sample raises an exception.

What it finds
-------------
The exception that `dataset[index]`, or the next item of a stream, raised when some samples were made without workers: the first
two batches in the sampler's order, both ends of the dataset and some between. Also a `collate_fn` that raises for a batch whose
samples have nothing else wrong with them.

Why it hurts
------------
One unreadable file ends the epoch, hours into it. From a worker torch raises an error made from text: the type survives
only if it can be called with one string, and `.filename`, `.errno` or `.code` are gone. The index is lost.

Example
-------
```text
FileNotFoundError: Caught FileNotFoundError in DataLoader worker process 3.
```

Fix
---
Call `dataset[index]` with the index of this finding, in a debugger. If you expect broken records, find them before
training, or let stoker's loader go on without them: `on_bad_sample="skip"` or `"replace"`, counted in `loader.stats()`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.samples import SampleFacts, SampleFailure, collation
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import ABOUT_LOADERS, FOREIGN, FRAME

_SHOWN = 5


def examine(samples: SampleFacts, target: TargetFacts) -> Iterator[Finding]:
    """One finding for each kind of exception; those that have a check of their own are left to it."""
    skips = target.loader.engine == "stoker" and target.loader.on_bad_sample != "raise"
    by_kind: dict[str, list[SampleFailure]] = {}
    for each in samples.failures:
        if not _elsewhere(each) and not each.collating:
            by_kind.setdefault(each.kind, []).append(each)
    for kind, failures in by_kind.items():
        yield _raised(kind, failures, samples, target, "low" if skips else "high")
    explained = samples.nones or any(not each.collates for each in samples.differences)
    for each in samples.failures:
        if each.collating and not explained:
            yield CHECK.finding(
                f"for the batch that begins with index {each.index}, {collation(target.assumed)} raised {each}",
                "Give the loader a collate_fn that takes such samples."
                if target.assumed
                else "Call collate_fn([dataset[index], ...]) with these samples in a debugger.",
                severity="low" if target.assumed else "high",
                where="collate_fn",
                numbers={"index": each.index, "kind": each.kind},
            )


def _raised(
    kind: str, failures: list[SampleFailure], samples: SampleFacts, target: TargetFacts, severity: str
) -> Finding:
    first = failures[0]
    place = f"item {first.index} of the stream" if target.stream else f"dataset[{first.index}]"
    indices = ", ".join(str(each.index) for each in failures[:_SHOWN])
    stokers = target.loader.engine == "stoker"
    return CHECK.finding(
        f"{place} raised {first}; {len(failures)} of {len(samples.indices)} samples "
        f"that were tried did (index {indices})",
        f"Call dataset[{first.index}] in a debugger. " * (not target.stream)
        + 'If such samples are to be expected, on_bad_sample="skip" or "replace" of stoker\'s loader goes on without them.',
        severity=severity,
        edit=Edit('on_bad_sample="skip"', site=target.loader.site, kind="argument")
        if stokers and severity == "high"
        else None,
        where=place,
        numbers={
            "index": first.index,
            "kind": kind,
            "failures": len(failures),
            "tried": len(samples.indices),
        },
    )


def _elsewhere(each: SampleFailure) -> bool:
    """STK405 has ends of iteration, STK304 accelerators."""
    return (
        each.kind == "StopIteration"
        or "generator raised StopIteration" in each.text
        or ("Cannot re-initialize" in each.text and "in forked subprocess" in each.text)
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(r"\b\w{1,80}(?: \w{1,80})? in DataLoader worker process \d+", weight=9),
        Mark(  # its words were cut off
            r"\bdata\.reraise\(\)|in _process_(?:data|next_batch)\b|^(?:-{1,}> ?\d+)? *return self\._process_(?:data|"
            r"next_batch)\(",
            weight=7,
        ),
        Mark(  # the sample's frames were cut off
            r"^ *data = \[self\.dataset\[idx\]|"
            r"in <listcomp>\n *(?:batch|samples) = (?:self\.)?collate_fn\(\[(?:self\.)?dataset\[i\]",
            weight=6,
        ),
        Mark(  # the loader's frames were cut off
            r"File \"(?![^\"\n]{0,300}[\\/](?:h5py|torch|pandas)[\\/])[^\"\n]{0,300}[Dd]ata_?(?:[Ss]et|[Ll]oader)"
            r"(?:s?[\\/]\w{1,40}\.py|[^\"\n\\/]{0,60})\", line \d+, in (?:__getitems?__|get_item)\b",
            weight=7,
        ),
        Mark(r"^ *line \d{1,5}, in __getitems?__$", never=(FOREIGN,), weight=6),  # the file's name too
        Mark(
            r"cannot identify image file|image file is truncated|broken data stream when reading image",
            also=(ABOUT_LOADERS,),
            never=(FRAME,),
            weight=7,
        ),
        Mark(  # only the line that iterates was left
            r"^ *for [^\n]{1,120} in [^\n]{0,60}[Ll]oader\w*\b[^\n]{0,40}:\n(?:\w+\.)*\w*Error: "
            r"(?:cannot identify image file|image file is truncated|broken data stream when reading image)",
            weight=6,
        ),
        Mark(  # a notebook's frames without workers, the rest cut off
            r"^-{1,}> ?\d+ +data = self\._dataset_fetcher\.fetch\(index\)",
            never=(FOREIGN, r"KeyboardInterrupt"),
            weight=5,
        ),
        Mark(  # only the loader's own frames were left
            r"^ *data = self\._next_data\(\)\n(?:[ ~^]*\n)?(?:\w+\.)*\w+(?:Error|Exception): ",
            never=(FOREIGN,),
            weight=6,
        ),
        Mark(  # only the line that iterates was left; what it unpacks is its own affair
            r"^ *for [^\n]{1,120} in [^\n]{0,60}[Ll]oader\w*\b[^\n]{0,40}:\n(?:[ ~^]*\n)?"
            r"(?:\w+\.)*\w+(?:Error|Exception): (?![^\n]*(?:unpack|iterable|subscriptable|callable|iterator))",
            never=(FOREIGN,),
            weight=5,
        ),
        Mark(  # told in words
            r"(?<!def[ ])\b__getitem__\b",
            also=(ABOUT_LOADERS, r"\b[A-Z]\w*Error\b"),
            never=(FRAME,),
            weight=6,
        ),
        Mark(r"^\w*Error: Traceback \(most recent call last\):", also=(r"in _worker_loop",), weight=9),
        Mark(  # a worker was making a batch, and the rest was cut off
            r"in _worker_loop\n *data = fetcher\.fetch\(index\)", never=(r"KeyboardInterrupt",), weight=6
        ),
        Mark(r"_utils[\\/]fetch\.py", also=(r"in (?:[\w.]+\.)?__getitems?__",), weight=7),
        Mark(r"Caught \w+(?: \w+)? in pin memory thread for device", weight=7),
        Mark(r"stoker: (?:while fetching|in the batch of) dataset ind", weight=9),
    ),
    rows=(26,),
)
