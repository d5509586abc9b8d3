"""Advice for waits that the loader itself causes: order, the training process, the start of workers. Pure."""

from __future__ import annotations

from stoker._record.finding import Edit, Gain, duration
from stoker._tools.report.verdict.case import AdviceCase
from stoker._tools.report.verdict.codes import VerdictFinding


def head_of_line(case: AdviceCase) -> list[VerdictFinding]:
    """The slow samples, more batches ahead, or any order."""
    found = []
    blamed = [each for each in case.loader.slowest if each.blamed_ns]
    if blamed:
        total_ns = case.loader.totals.wait_ns + case.loader.totals.step_ns
        share = min(1.0, sum(each.blamed_ns for each in blamed) / max(1, total_ns))
        names = ", ".join(str(each.index)[:20] for each in blamed[:4])
        found.append(
            case.finding(
                "slow-samples",
                f"samples {names} held finished batches back",
                "Look at these samples: a large file, a retry, a cold cache. Make them cheaper or leave them out.",
                None,
                Gain(share, f"the waiting that these {len(blamed)} samples cause", at_most=True),
            )
        )
    factor = case.option("prefetch_factor")
    if isinstance(factor, int):
        found.append(
            case.finding(
                "deeper-window",
                f"later batches were ready during {case.causes.share('head_of_line'):.0%} of the waiting",
                "Make more batches ahead, so that a slow one starts earlier.",
                case.edit("prefetch_factor", 4 * factor),
                Gain(
                    None, "depends on how the slow batches are spread; at most the waiting that order causes"
                ),
            )
        )
    if case.option("in_order") is not False:
        found.append(
            case.finding(
                "any-order",
                f"later batches were ready during {case.causes.share('head_of_line'):.0%} of the waiting",
                "If the order of batches does not matter, take them as they finish.",
                case.edit("in_order", False),
                case.at_most("head_of_line"),
            )
        )
    return found


def slow_worker(case: AdviceCase) -> VerdictFinding:
    """The one that differs from the others."""
    told = case.causes.measurement("slow_worker")
    share = (case.causes.stall or 0.0) * (0.0 if told is None else told.value or 0.0)
    return case.finding(
        "slow-worker",
        case.evidence_text("slow_worker"),
        "Look at what differs in this worker: worker_init_fn, its shard of the data, the CPU or the disk that it is bound to.",
        None,
        Gain(share, "the waiting that this worker causes", at_most=True),
    )


def parent(case: AdviceCase) -> list[VerdictFinding]:
    """What the training process does itself, by stage."""
    stage = next((each for each in case.causes.stages("parent") if each != "record"), "open")
    code, advice = _PARENT[stage if stage in _PARENT else "open"]
    spent_ns = case.causes.stages("parent").get(stage, 0)
    share = spent_ns / max(1, case.causes.wait_ns)
    batch_s = spent_ns / 1e9 / max(1, case.loader.totals.steps)
    evidence = (
        f"{share:.0%} of the waiting is the training process itself, in {stage}: {duration(batch_s)} a batch"
    )
    if code == "heavy-batches" and batch_s < _LONG_OPENING_S:
        advice = _SHORT_OPENING
    return [case.finding(code, evidence, advice, None, case.at_most("parent"))]


_LONG_OPENING_S = 0.005
"""A batch of a few tensors is opened in less; thousands of Python objects take longer."""
_SHORT_OPENING = "Opening a batch costs the same for every batch, whatever is in it: larger batches have fewer of these costs."

_PARENT = {
    "plan": ("slow-sampler", "Make the sampler cheaper: compute the order once per epoch (torch.randperm), yield plain ints."),
    "open": (
        "heavy-batches",
        "Return tensors, or numpy arrays, from collate_fn: thousands of Python objects are unpickled in the training process.",
    ),
    "pin": ("slow-pinning", "Fewer, larger tensors per batch pin faster; pin_memory=False if the device is not waiting for it."),
    "copy": (
        "slow-copy",
        "Copies to the device are slower than the steps: send fewer bytes (uint8 images, made float there), and see STK709.",
    ),
    "wake": ("late-wake", "The training process is busy elsewhere: threads of its own that hold the GIL, or no free CPU."),
}  # fmt: skip
"""By stage: the finding, and what to do."""


_SPAWNED = "If nothing speaks against a fork (no accelerator in workers, no threads), take multiprocessing_context='fork'. "


def start_up(case: AdviceCase) -> list[VerdictFinding]:
    """Workers that stay, and less to do before the first batch."""
    epochs = case.loader.totals.epochs
    first_ns = case.loader.totals.first_batch_ns
    evidence = (
        "the first batch's time was not measured"
        if first_ns is None
        else f"first batch after {first_ns / 1e9:.1f} s"
    )
    advice = "Move work out of worker_init_fn and the dataset's first access: open files lazily, import less, share large data."
    found = []
    if epochs > 1 and case.option("persistent_workers") is False and case.option("num_workers"):
        share = (case.causes.stall or 0.0) * case.causes.share("start_up") * (epochs - 1) / epochs
        found.append(
            case.finding(
                "persistent-workers",
                f"workers were started {epochs} times",
                "Keep the workers between epochs.",
                case.edit("persistent_workers", True),
                Gain(share, f"{epochs - 1} of {epochs} starts are saved"),
            )
        )
    if case.option("start_method") == "spawn":
        evidence += ", and workers are spawned: each imports the script and its libraries anew"
        advice = _SPAWNED + advice
    found.append(
        case.finding(
            "slow-start",
            evidence,
            advice,
            None,
            Gain(None, "workers start once per run or epoch, so a long run gains little"),
        )
    )
    return found


def switch(case: AdviceCase) -> VerdictFinding:
    """stoker's loader in place of torch's, with what may be expected of it."""
    # The sampler takes its time in any loader, and so does what a dataset does when it starts.
    sampler_ns = case.causes.stages("parent").get("plan", 0)
    share = case.causes.share("parent", "head_of_line") - sampler_ns / max(1, case.causes.wait_ns)
    helpers = case.causes.measurement("helpers_share")
    share += 0.0 if helpers is None else helpers.value or 0.0
    if share < 0.1:
        gain = Gain(None, "the work of the samples stays the same, so no gain is promised")
    else:
        gain = Gain(
            (case.causes.stall or 0.0) * share,
            "what torch's loader adds to the samples' own work",
            at_most=True,
        )
    return case.finding(
        "stoker-loader",
        f"{share:.0%} of the waiting is the loader's own work: opening batches, noticing them, keeping order",
        "Try stoker's DataLoader without editing the script: type stoker run instead of python.",
        Edit("from stoker import DataLoader", "from torch.utils.data import DataLoader"),
        gain,
    )
