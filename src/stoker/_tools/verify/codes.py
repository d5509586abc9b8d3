"""The codes of verify's answers: what each says and what to do. They are stable, because other tools rely on them."""

from __future__ import annotations

from typing import NamedTuple


class VerifyCode(NamedTuple):
    """What an answer says, without its numbers. ``advice`` is "" where there is nothing to do."""

    title: str
    advice: str = ""


_ALL_RECEIPTS = "Give verify the receipts of all ranks and legs."
_SAVE_ANEW = (
    "Call loader.state_dict() anew for every checkpoint, and load the one that belongs to the weights."
)

CODES = {
    "same": VerifyCode("two runs handed over the same batches, with the same seed"),
    "different": VerifyCode(
        "two runs handed over different batches", "Compare the samplers, seeds and datasets of the runs."
    ),
    "different-seed": VerifyCode(
        "two runs handed over the same indices under different base seeds",
        "Call torch.manual_seed() before the first epoch, or give the loader a generator.",
    ),
    "different-samples": VerifyCode(
        "two runs on different numbers of ranks did not hand over the same samples in all",
        "Compare the samplers and datasets of the runs.",
    ),
    "different-length": VerifyCode(
        "two runs over a stream have different numbers of batches",
        "Compare what the stream reads, and how it is divided.",
    ),
    "another-dataset": VerifyCode(
        "the receipts are of datasets of another class or length", "Compare runs over the same data."
    ),
    "dataset-changed": VerifyCode(
        "the class, attributes or code of the dataset are not the same in both runs",
        "If samples should be the same, compare the arguments of the datasets.",
    ),
    "epochs-missing": VerifyCode("only one of the runs has some of the epochs"),
    "other-order": VerifyCode("the same batches came in another order (in_order=False)"),
    "other-ranks": VerifyCode(
        "two runs have different numbers of ranks, and receipts are missing", _ALL_RECEIPTS
    ),
    "same-samples": VerifyCode("the same samples in all, divided among another number of ranks"),
    "stream": VerifyCode("an iterable dataset has no indices, so its batches are counted only"),
    "complete": VerifyCode("every sample was handed over exactly once"),
    "padded": VerifyCode("some samples came twice, so that all ranks have as many"),
    "dropped": VerifyCode("drop_last left out some samples"),
    "subset": VerifyCode("the sampler names a part of the dataset, each sample once"),
    "replacement": VerifyCode("samples were drawn with replacement, so some come often and others never"),
    "wrong-samples": VerifyCode(
        "samples were never handed over, or came more than once",
        "Look at the sampler: it loses or repeats samples.",
    ),
    "double-sharding": VerifyCode(
        "the data was divided among the ranks twice, so most samples are never seen",
        "Divide once: give Accelerate's prepare a loader without a DistributedSampler.",
    ),
    "not-divided": VerifyCode(
        "several ranks handed over the same samples", "Give the loader a DistributedSampler."
    ),
    "bad-samples": VerifyCode(
        "on_bad_sample left samples out or replaced them", 'Read loader.stats()["bad_samples"].'
    ),
    "failed-batches": VerifyCode(
        "batches raised an error and were not handed over", "Read the errors in the log of the run."
    ),
    "incomplete": VerifyCode("the receipt lacks some of its blocks", "Copy the file again."),
    "damaged": VerifyCode(
        "the file is not whole; the part before the damage was read",
        "Copy the file again. A killed run may leave one like this.",
    ),
    "ranks-missing": VerifyCode("receipts of some ranks are missing", _ALL_RECEIPTS),
    "unfinished": VerifyCode("the epoch did not end"),
    "unknown": VerifyCode("legs are missing or overlap, so the samples are not known", _ALL_RECEIPTS),
    "opaque-indices": VerifyCode("the sampler yields objects that have no value to compare"),
    "no-numbers": VerifyCode("the indices are no whole numbers, so samples are counted only"),
    "too-many": VerifyCode("the dataset has too many samples to tell them apart"),
    "part-unknown": VerifyCode(
        "the sampler names a part of the dataset; whether each came once is not known"
    ),
    "adds-up": VerifyCode("the legs of a resumed run add up to an epoch"),
    "gap": VerifyCode(
        "no leg of a resumed run handed over some batches",
        f"{_ALL_RECEIPTS} If there are no others, these samples were lost.",
    ),
    "leg-missing": VerifyCode("the receipts of an earlier leg are missing", _ALL_RECEIPTS),
    "repeated": VerifyCode("a leg of a resumed run handed over batches of an earlier leg again", _SAVE_ANEW),
    "taken-again": VerifyCode("batches after the last checkpoint came again, as they should"),
    "same-order": VerifyCode(
        "two epochs had the same order", "Seed the generator once, and not in every epoch."
    ),
    "stale-set-epoch": VerifyCode(
        "a distributed sampler gave two epochs the same order",
        "Call sampler.set_epoch(epoch) before every epoch.",
    ),
}
"""By code."""
