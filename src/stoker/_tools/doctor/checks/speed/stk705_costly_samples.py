"""Samples need much CPU time.

What it finds
-------------
Samples compute so much, rather than wait, that all CPUs together make fewer than about 30 batches a second. The finding
names the functions that take the time, and your lines that call them. Time in which other programs had the CPUs does
not count.

Why it hurts
------------
No number of workers and no loader makes more batches than the CPUs can compute. If the accelerator is faster, it waits.
Compute less, compute once, or compute elsewhere.

Example
-------
```python
def __getitem__(self, index):
    image = Image.open(self.paths[index]).convert("RGB")      # decodes 24 megapixels
    image = image.resize((256, 256))                          # to keep 0.07 of the 24
    return self.normalise(to_tensor(image).float())           # in float32, one sample at a time
```

Fix
---
- Decoding: `image.draft("RGB", (512, 512))` before anything touches the pixels lets the JPEG decoder itself skip most of the work;
  `cv2.imread(path, cv2.IMREAD_REDUCED_COLOR_2)` does the same. Or store the images at the size that is used.
- Resizing: a box or bilinear filter, `reducing_gap=2.0`, first a cheap reduction and then the exact size; crop before, not after.
- The same result every time: compute it once. `torch.save` it, or keep it in an array, and augment what comes out of that.
- Arithmetic on whole images (normalising, flips, colour): leave samples in uint8 and do it on the accelerator, a batch at once.
- Python loops: numpy or torch operations over whole arrays, `__getitems__` for whole batches.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, counted, duration, size
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.speed import HotFunction, SpeedFacts
from stoker._tools.doctor.facts.target import TargetFacts

_COMPUTES = 0.7
_SOME_S, _MUCH_S = 0.03, 0.1
"""Seconds a batch takes on all CPUs: quick training steps take the first, ordinary ones the second."""
_WORTH_KEEPING_BYTES = 100 << 30
"""More than this is not kept for being computed once."""
_DECODE = (
    "decode",
    "imread",
    "Image.open",
    "Image.convert",
    "Image.load",
    "ImageFile",
    "read_image",
    "soundfile",
    "av.",
)
_RESIZE = ("resize", "thumbnail", "interpolate", "warp", "remap", "rotate", "transform", "affine")
_ARITHMETIC = ("torch.", "numpy.", "cv2.")


def examine(speed: SpeedFacts, target: TargetFacts) -> Iterator[Finding]:
    """What all CPUs can make of it, and where the time goes."""
    least_s = speed.cpu_s / speed.usable_cpus
    if speed.cpu_share < _COMPUTES or least_s < _SOME_S:
        return
    top = [each for each in speed.hot if each.share >= 0.1][:3]
    where = "; ".join(_description(each) for each in top)
    yield CHECK.finding(
        f"a batch of {speed.rows} takes {duration(speed.cpu_s)} of computing: {counted(speed.usable_cpus, 'CPU')} make at most "
        f"{_rate(1 / least_s)} batches ({_rate(speed.rows / least_s)} samples) a second, with any number of workers"
        + (f". The time of a sample goes {where}" if where else ""),
        _advice(speed, top),
        severity="moderate" if least_s >= _MUCH_S else "low",
        where=(f"{target.dataset_class}.{'__iter__' if target.stream else '__getitem__'}")
        if not top or not top[0].caller
        else top[0].caller,
        numbers={
            "cpu_s": speed.cpu_s,
            "cpu_share": round(speed.cpu_share, 2),
            "usable_cpus": speed.usable_cpus,
            "batches_per_s": round(1 / least_s, 2),
            **{f"hot_{place}": f"{each.function} {each.share:.2f}" for place, each in enumerate(top)},
        },
    )


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.3g}"


def _description(hot: HotFunction) -> str:
    if hot.own:
        return f"{hot.share:.0%} into Python code of your own, {hot.function} ({hot.caller})"
    return f"{hot.share:.0%} into {hot.function}" + (f" called from {hot.caller}" if hot.caller else "")


def _advice(speed: SpeedFacts, top: list[HotFunction]) -> str:
    """One thing about what dominates, and whether results could be kept."""
    said = _about(top[0]) if top else "Profile __getitem__ and make its most expensive part cheaper."
    kept = speed.sample_bytes * (speed.length or 0)
    if speed.repeatable and kept:
        how = "keep them in one array" if kept < (speed.available_bytes or 0) / 2 else "read them from a file"
        if kept < _WORTH_KEEPING_BYTES:
            said += (
                f" A sample comes out the same every time: make all of them once ({size(kept)}) and {how}."
            )
    return said


def _about(hot: HotFunction) -> str:
    if hot.own:
        return "Replace Python loops by operations on whole arrays, or move arithmetic to the accelerator, a batch at a time."
    if any(word in hot.function for word in _DECODE):
        return 'Decode less: image.draft("RGB", size) before the first use, IMREAD_REDUCED_COLOR_2, or smaller files.'
    if any(word in hot.function for word in _RESIZE):
        return "Resize cheaper: reduce while decoding (draft), use a cheaper filter, crop first, or store smaller images."
    if hot.function.startswith(_ARITHMETIC):
        return "Leave samples as they are stored (uint8) and do this on the accelerator, for the whole batch at once."
    return f"Call {hot.function} less often, or do once what it does for every sample."


CHECK = Check(__name__, __doc__, severity="moderate", examine=examine)
