"""Names what samples drew random numbers from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RandomSource:
    """Something that samples drew random numbers from: its state had changed after they were made."""

    name: str
    """Its path or name, as one would write it: "dataset.transform.rng", "augment.RNG", "numpy.random", "cv2"."""
    kind: str
    """ "numpy.Generator", "numpy.RandomState", "torch.Generator", "random.Random", "cv2"."""
    reach: str
    """ "stored" (on the dataset), "module" (a global of some module), "closure", "global" (what module-level functions of torch,
    NumPy and random draw from), "library" (OpenCV's own)."""
