"""The codes of a verdict's findings. They are stable, because other tools rely on them."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._record import finding

CODES = {
    "not-data": "the loader is not what limits this run",
    "more-workers": "more workers would make batches fast enough, or faster",
    "fewer-workers": "there are more workers than CPUs",
    "threads-per-worker": "workers compute with several threads each, more than there are CPUs",
    "cheaper-samples": "all CPUs are busy, so a sample must cost less",
    "sample-cache": "a cache would spare most of the work of samples from the second epoch on",
    "slow-reads": "samples wait for storage, network, a lock or a sleep, and more workers would not help",
    "use-threads": "workers that only wait can be threads",
    "use-processes": "threads wait for each other at the interpreter's lock",
    "memory-bandwidth": "workers wait for memory",
    "cpu-quota": "the cgroup's quota is used up",
    "cpu-neighbours": "other processes have the CPUs",
    "no-batch": "no batch came",
    "dying-workers": "workers died while the loop waited for them",
    "slow-worker": "one worker takes much longer than the others",
    "slow-samples": "a few samples take much longer than the others",
    "deeper-window": "too few batches are made ahead, given how much their times differ",
    "any-order": "finished batches wait for an earlier one",
    "slow-sampler": "the sampler, in the training process, is slow",
    "heavy-batches": "opening a batch takes the training process a long time",
    "slow-pinning": "copying into pinned memory takes a long time",
    "slow-copy": "copying batches to the device takes longer than the steps",
    "late-wake": "the training process notices finished batches late",
    "persistent-workers": "workers start again in every epoch",
    "slow-start": "the first batch comes late",
    "no-readings": "the workers' CPU times were not measured",
    "stoker-loader": "the same script with stoker's DataLoader",
    "data-starved": "devices have nothing to do while the loop waits for a batch",
    "exposed-copy": "devices do nothing else while batches are copied to them",
    "launch-bound": "devices finish kernels faster than the host launches them",
    "host-work": "devices wait for what the host does between operations",
    "host-full": "the host's CPUs are too busy to launch work in time",
    "host-sync": "the host waits for a device, which then has nothing to do",
    "late-rank": "ranks wait in collectives for one that is late",
    "memory-growing": "more memory is allocated from step to step",
}
"""Every code that a verdict may use, and what it says."""


REMEDIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "not-data": ("Look at the model: stoker report TRACE reads a trace of torch.profiler.", ()),
    "more-workers": (
        'Raise num_workers to the number that the verdict names, or set num_workers="auto".',
        ("STK701",),
    ),
    "fewer-workers": ("Lower num_workers to the number that the verdict names.", ("STK702",)),
    "threads-per-worker": ("Set OMP_NUM_THREADS=1, and cv2.setNumThreads(0) in worker_init_fn.", ("STK307",)),
    "cheaper-samples": (
        "Decode or resize ahead of training, cache samples, or move augmentation to the device.",
        ("STK705",),
    ),
    "sample-cache": (
        "Write dataset = stoker.cache(dataset, budget=...): it refuses random samples, and says what to cache then.",
        ("STK705",),
    ),
    "slow-reads": ("Read larger pieces, from a nearer disk, or hold no lock while reading.", ("STK707",)),
    "use-threads": ("Let stoker tune find out whether threads leave the batches as they are.", ()),
    "use-processes": ('Set executor="process".', ()),
    "memory-bandwidth": ("Use fewer workers or smaller samples: uint8 in place of float32.", ("STK710",)),
    "cpu-quota": ("Give the container more CPUs, or lower num_workers.", ("STK204", "STK702")),
    "cpu-neighbours": ("Find the other processes with top, and measure again without them.", ("STK702",)),
    "no-batch": ("Run stoker doctor --bisect TARGET.", ("STK804", "STK411")),
    "dying-workers": (
        "Read the error of the first worker that died, with stoker explain.",
        ("STK801", "STK603"),
    ),
    "slow-worker": ("See what that worker does with stoker top.", ("STK707",)),
    "slow-samples": (
        "Find the samples that the verdict lists, and make them cheaper or leave them out.",
        ("STK707",),
    ),
    "deeper-window": ("Raise prefetch_factor, or leave it out so that it may deepen.", ("STK604",)),
    "any-order": ("Set in_order=False if the order of batches does not matter.", ()),
    "slow-sampler": ("Make the order of an epoch at once, as an array.", ("STK605",)),
    "heavy-batches": ("Return few large tensors: stack them in collate_fn.", ("STK408",)),
    "slow-pinning": ("Return fewer and larger tensors, or set device=.", ("STK704",)),
    "slow-copy": (
        "Copy less: uint8 in place of float32, fewer and larger tensors, page-locked memory.",
        ("STK709", "STK710"),
    ),
    "late-wake": ("Leave a CPU for the training process: lower num_workers or its threads.", ("STK307",)),
    "persistent-workers": ("Set persistent_workers=True.", ("STK706",)),
    "slow-start": ("Load data on first use, not in __init__.", ("STK108", "STK106")),
    "no-readings": ("Measure on Linux, or as the user who started the run.", ()),
    "stoker-loader": ("Write: from stoker import DataLoader", ()),
    "data-starved": ("Run stoker profile SCRIPT: it says why batches come late.", ()),
    "exposed-copy": (
        "Set pin_memory=True and copy with non_blocking=True, or set device=.",
        ("STK708", "STK703"),
    ),
    "launch-bound": ("Use larger batches, torch.compile or CUDA graphs.", ()),
    "host-work": ("Move what the host does between operations out of the loop.", ()),
    "host-full": ("Lower num_workers, or the threads of each worker.", ("STK307", "STK702")),
    "host-sync": ("Read losses rarely: .item() and print wait for the device.", ("STK708",)),
    "late-rank": ("Profile that rank: stoker profile writes one record for each.", ("STK506",)),
    "memory-growing": ("Keep no batch and no loss with its graph: append loss.item().", ("STK601",)),
}
"""By code: what to type or change, and the checks whose pages say more."""


@dataclass(frozen=True, slots=True)
class VerdictFinding(finding.Finding):
    """A finding of a verdict: its code is one of these."""

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"no such finding: {self.code!r}")
        finding.Finding.__post_init__(self)
