"""The dataset holds a tensor on an accelerator, or one that requires a gradient.

What it finds
-------------
Tensors on the dataset, on its transforms or in models it holds, that live on an accelerator, or whose `requires_grad` is set.

Why it hurts
------------
A forked worker that touches an accelerator's tensor ends with `Cannot re-initialize CUDA in forked subprocess`. A
spawned one works, but every worker makes a context of its own there, hundreds of megabytes each, and competes with the
training for the device. A result computed from a tensor that requires a gradient requires one too. torch's workers
cannot send it, and the batch never comes. Such a result on the dataset cannot even be pickled:
`refusing to serialize non-leaf tensor which requires_grad`.

Example
-------
```python
class Normalised(Dataset):
    def __init__(self, images):
        self.mean = images.mean().cuda()          # used in __getitem__: fails in every worker
        self.encoder = resnet18()                 # its outputs require a gradient
```

Fix
---
Keep CPU tensors on the dataset (`.cpu()`), and do device work in the training loop, on the batch. For models and
tensors with a gradient: `.requires_grad_(False)`, `.detach()`, or `with torch.no_grad():` in `__getitem__`. stoker's
loader sends such tensors without their history, and names the use of an accelerator in a worker.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, size
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.scan import OddTensor, ScanFacts
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts
from stoker._tools.doctor.wording import ABOUT_LOADERS, FEEDING, LOADER, POOLS, RANKS, STARTING

_SHOWN = 3


def examine(scan: ScanFacts, target: TargetFacts, samples: SampleFacts | None = None) -> Iterator[Finding]:
    """One finding for those on a device, one for those with a gradient."""
    loader = target.loader
    if not loader.num_workers:
        return
    device = [each for each in scan.odd_tensors if not each.device.startswith("cpu")]
    if device:
        forked = loader.start_method == "fork"
        yield CHECK.finding(
            f"{_listed(device)} on {device[0].device}: "
            + (
                "a forked worker that uses it ends with 'Cannot re-initialize CUDA in forked subprocess'"
                if forked
                else f"each of {loader.num_workers} workers makes a context of its own on the device, hundreds of megabytes each"
            ),
            "Keep it on the CPU (.cpu()), and do what needs the device on the batch, in the training loop.",
            severity="high" if forked else "moderate",
            where=device[0].path,
            numbers=_numbers(device),
        )
    graded = [each for each in scan.odd_tensors if each.requires_grad and each.device.startswith("cpu")]
    if graded and loader.engine != "stoker":
        yield _graded(graded, loader, samples)


def _graded(graded: list[OddTensor], loader: LoaderArguments, samples: SampleFacts | None) -> Finding:
    unsendable = [each for each in graded if not each.leaf and loader.start_method != "fork"]
    sent = [leaf.path or "the sample" for leaf in samples.leaves if leaf.requires_grad] if samples else []
    shown = unsendable or graded
    if unsendable:
        rest, severity = "is the result of a computation: it cannot be sent to a worker", "high"
    elif sent:
        rest, severity = (
            f"requires a gradient, and so does what samples hold ({', '.join(sent[:_SHOWN])})",
            "high",
        )
    else:
        rest, severity = (
            "requires a gradient, and so does what is computed from it without torch.no_grad()",
            "low",
        )
    return CHECK.finding(
        f"{_listed(shown)} {rest}" + ("" if unsendable else ": torch's workers cannot send that"),
        "Keep it without its history: .requires_grad_(False) or .detach(); or use torch.no_grad() in __getitem__. stoker's loader "
        "detaches what workers send.",
        severity=severity,
        where=shown[0].path,
        numbers=_numbers(shown),
    )


def _listed(tensors: list[OddTensor]) -> str:
    count = sum(each.count for each in tensors)
    names = ", ".join(each.path for each in tensors[:_SHOWN])
    more = f" and {count - min(len(tensors), _SHOWN)} more" if count > min(len(tensors), _SHOWN) else ""
    return f"{names}{more} ({size(sum(each.nbytes * each.count for each in tensors))})"


def _numbers(tensors: list[OddTensor]) -> dict[str, int | str]:
    nbytes = sum(each.nbytes * each.count for each in tensors)
    return {"count": sum(each.count for each in tensors), "bytes": nbytes, "device": tensors[0].device}


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(
            r"refusing to serialize non-leaf tensor which requires_grad",
            also=(LOADER, STARTING),
            never=(FEEDING,),
            weight=22,
        ),
        Mark(  # the parent's words, and the child that was told nothing
            r"refusing to serialize non-leaf tensor which requires_grad",
            also=(r"spawn_main|reduction\.pickle\.load\(from_parent\)",),
            never=(FEEDING, RANKS, POOLS),
            weight=16,
        ),
        Mark(r"storage\._share_cuda_\(\)", also=(LOADER, STARTING), never=(FEEDING,), weight=22),
        Mark(  # Windows shares no memory of a device
            r"StorageSharing\.cpp[^\n]{0,60}(?:801|operation not supported)|"
            r"error \(?801\)?[^\n]{0,60}operation not supported[^\n]{0,120}StorageSharing\.cpp",
            never=(FEEDING, RANKS, POOLS),
            weight=20,
        ),
        Mark(
            r"Cannot pickle CUDA storage",
            also=(rf"{LOADER}|{ABOUT_LOADERS}",),
            never=(FEEDING, RANKS, POOLS),
            weight=20,
        ),
        Mark(r"Attempted to send CUDA tensor received from another process", also=(LOADER,), weight=20),
        Mark(r"Producer process has been terminated before all shared CUDA tensors released", weight=4),
        Mark(
            r"CUDA error: (?:invalid device context|peer access|OS call failed)",
            also=(LOADER, r"rebuild_cuda_tensor|reductions\.py"),
            weight=18,
        ),
    ),
    rows=(3, 22),
)
