"""torch's default device is not the CPU.

What it finds
-------------
`torch.set_default_device` (or a `with torch.device(...)` around the loop) is in force where a loader is made.

Why it hurts
------------
The sampler shuffles with a generator of the CPU, but `torch.randperm` now works on the device: `Expected a 'cuda' device type
for generator but found 'cpu'`. Forked workers inherit the setting: each `torch.tensor(...)` in the dataset then goes to the
accelerator, which cannot be used after a fork (`Cannot re-initialize CUDA in forked subprocess`).

Example
-------
```python
torch.set_default_device("cuda")
loader = DataLoader(ds, shuffle=True, num_workers=2)
next(iter(loader))                                  # RuntimeError
```

Fix
---
Keep the CPU as the default while data is loaded, and send batches over in the loop:

```python
model = Net().to("cuda")
for batch in loader:
    batch = batch.to("cuda", non_blocking=True)
```

Or make the model under `with torch.device("cuda"):` and the loader outside. Only for the shuffling:
`generator=torch.Generator(device="cuda")`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.process import ProcessFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import FRAME, LOADER


def examine(process: ProcessFacts, target: TargetFacts) -> Iterator[Finding]:
    """Shuffling fails with any number of workers, the dataset's own tensors in forked ones."""
    loader = target.loader
    if process.default_device == "cpu" or loader.engine == "stoker":
        return
    forked = loader.num_workers > 0 and loader.start_method == "fork"
    breaks = [
        *(["the sampler cannot shuffle"] if loader.shuffle else []),
        *(["tensors that a forked worker makes land there"] if forked else []),
    ]
    yield CHECK.finding(
        f"torch's default device is {process.default_device}"
        + (f": {' and '.join(breaks)}" if breaks else ", where the loader draws its seeds, too"),
        f"Do not set it around the loader: .to({process.default_device!r}) for the model and for each batch.",
        severity="high" if breaks else "low",
        where="torch.set_default_device",
        numbers={"device": process.default_device, "num_workers": loader.num_workers},
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Sampler, loader and workers make their tensors on the CPU, whatever the default is.",
    examine=examine,
    marks=(
        Mark(
            r"Expected an? '[\w:]+' (?:device type for generator|generator device) but found '[\w:]+'",
            also=(rf"{LOADER}|sampler\.py|torch\.randperm\(n, generator",),
            weight=26,
        ),
        Mark(
            r"(?i)Expected an? '[\w:]+' (?:device type for generator|generator device) but found '[\w:]+'",
            never=(FRAME, r"\b(?:torch\.Generator|randperm|randint|multinomial)\("),
            weight=20,
        ),
    ),
    rows=(47,),
)
