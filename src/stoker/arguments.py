"""The arguments of ``DataLoader``: one table, from which every other list of arguments is selected.

``ARGUMENTS`` has one entry per argument, in the order of the signature. The constructor's checks, the record, the doctor, the
tuner, the profiler and the docs' table read it. A new argument is one entry here, one parameter of ``DataLoader.__init__`` and
the code that uses it. ``tests/unit/test_arguments.py`` compares the table with the signature and with the docs.

``Options`` below the table holds the values that the engine uses, resolved once, with the reason for each.

This module imports the standard library and ``argument_numbers`` only, and any module may import it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any, Literal, NamedTuple, get_args

from stoker.argument_numbers import parse_bytes, shown

Executor = Literal["process", "thread", "inline", "ray"]
RngMode = Literal["batch", "sample", "torch"]
BadSampleMode = Literal["raise", "skip", "replace"]
Owner = Literal["torch", "stoker"]
RNG_MODES: tuple[str, ...] = get_args(RngMode)
BAD_SAMPLE_MODES: tuple[str, ...] = get_args(BadSampleMode)
REQUIRED: Any = Parameter.empty
"""The default of an argument that has none."""


class ExecutorKind(NamedTuple):
    """The traits of one value of ``executor``. Code asks for a trait, never for a name.

    The defaults are those of an executor on another host. ``_runtime/executors/registry.py`` makes executors.
    """

    name: str
    workers: bool = True
    """Whether there are workers, which make batches ahead. False: ``next()`` makes the batch."""
    processes: bool = False
    """Whether workers are processes: they have a start method, and batches lie in the arena."""
    threads: bool = False
    """Whether workers are threads of this process: they share the dataset and the interpreter's lock."""

    remote: bool = False
    """Whether workers may run on other hosts: the dataset is sent there, and nothing is inherited by a fork."""

    @property
    def copies_dataset(self) -> bool:
        """Whether each worker has a copy of the dataset."""
        return self.workers and not self.threads


EXECUTORS: Mapping[str, ExecutorKind] = {
    "process": ExecutorKind("process", processes=True),
    "thread": ExecutorKind("thread", threads=True),
    "inline": ExecutorKind("inline", workers=False),
    "ray": ExecutorKind("ray", processes=True, remote=True),
}
DEFAULT_EXECUTOR: Executor = "process"
"""What ``executor=None`` means where there are workers."""
NO_WORKERS: Executor = "inline"
"""The executor of a loader without workers, whatever was asked for."""


def executor_kind(name: Any) -> ExecutorKind:
    """The traits of an executor. None means the default. Never raises: values that were not checked yet come here, too."""
    name = DEFAULT_EXECUTOR if name is None else executor_name(name)
    return next((each for each in EXECUTORS.values() if each.name == name), ExecutorKind(name))


def executor_name(value: Any) -> Any:
    """The name of a value of ``executor``: an object such as ``stoker.Ray(...)`` carries it."""
    return getattr(value, "executor_kind", value)


AUTO = "auto"


class Auto(int):
    """A number of workers that the loader chose itself. It counts as an int, and a constructor takes it as "auto" again.

    It is what ``loader.num_workers`` is then, at any time: frameworks compare it with numbers, and rebuild loaders from it.
    """

    def __repr__(self) -> str:
        return f"Auto({int(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)


def is_auto(num_workers: Any) -> bool:
    """Whether the loader is to choose the number itself. Raises ValueError for another text."""
    if isinstance(num_workers, str) and num_workers != AUTO:
        raise ValueError(
            f"num_workers should be a number or {AUTO!r}, but got num_workers={shown(num_workers)}"
        )
    return isinstance(num_workers, str | Auto)


class LeftOpen(int):
    """A number that the user did not give. It compares and counts as an int, and a constructor takes it as "not given" again.

    Frameworks rebuild loaders from their attributes: without this, torch's default would come back as a choice.
    """


class Context(NamedTuple):
    """The properties of the loader that the checks of its arguments depend on."""

    num_workers: int
    executor: Any = None
    lasting: bool = True
    """Whether workers outlive an epoch, or there are none."""
    iterable: bool = False
    batched: bool = True
    """Whether the loader collates samples into batches: False with ``batch_size=None``."""


Check = Callable[[str, Any, Context], None]
"""Takes the argument's name, its value and the context. Raises ValueError for a wrong value and TypeError for a wrong type."""


class Argument(NamedTuple):
    """One argument of ``DataLoader``. Each flag says that the argument is in the list which one of the readers selects."""

    name: str
    type: str
    """The annotation in the signature, as it is written there."""
    default: Any
    description: str
    """One sentence for the docs' table. The docstring of ``DataLoader`` has the details."""
    owner: Owner = "torch"
    check: Check | None = None
    """For stoker's own arguments. torch's constructor checks torch's."""
    positional: bool = False
    """Whether a caller may pass it by position."""
    recorded: bool = False
    """Whether the record's options contain it."""
    tunable: bool = False
    """Whether the tuner may change it."""
    patchable: bool = True
    """Whether a patch may write it into a call, or remove it from one."""
    needs_workers: bool = False
    """Whether a patch removes it when it writes ``num_workers=0``: torch refuses it then, or it has no effect."""
    examined: bool = False
    """Whether the sandbox gives it to the probes of the doctor and the tuner."""
    bisected: bool = False
    """For stoker's own: whether the loaders of ``stoker doctor --bisect`` keep the user's value."""
    benched: bool = False
    """For stoker's own: whether the loaders that the tuner times keep the user's value."""


def _one_of(modes: tuple[str, ...]) -> Check:
    def check(name: str, value: Any, context: Context) -> None:
        if value not in modes:
            raise ValueError(f"{name} should be one of {modes}, but got {name}={shown(value)}")

    return check


def _executor(name: str, value: Any, context: Context) -> None:
    if value is not None and executor_name(value) not in tuple(EXECUTORS):
        raise ValueError(
            f"{name} should be one of {tuple(EXECUTORS)}, a stoker.Ray or None, but got {name}={shown(value)}"
        )
    if context.num_workers > 0 and not executor_kind(value).workers:
        raise ValueError(
            f"executor={shown(value)} makes batches without workers, but got num_workers={context.num_workers}"
        )


def _int(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} should be an int, but got {type(value).__name__}")


def _count(name: str, value: Any, context: Context) -> None:
    _int(name, value)
    if value < 0:
        raise ValueError(f"{name} should be non-negative, but got {name}={shown(value)}")


def _count_or_none(name: str, value: Any, context: Context) -> None:
    if value is not None:
        _count(name, value, context)


def _bool_or_none(name: str, value: Any, context: Context) -> None:
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{name} should be a bool or None, but got {type(value).__name__}")


def _text_or_none(name: str, value: Any, context: Context) -> None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} should be a string or None, but got {type(value).__name__}")


def _device(name: str, value: Any, context: Context) -> None:
    # A torch.device, which this module does not import, has these two attributes.
    if (
        value is not None
        and not isinstance(value, str)
        and not (hasattr(value, "type") and hasattr(value, "index"))
    ):
        raise TypeError(f"{name} should be a string, a torch.device or None, but got {type(value).__name__}")
    if value == "":
        raise ValueError(
            f'{name} should name a device, such as "cuda" or "auto", but got {name}={shown(value)}'
        )


def _path_or_bool(name: str, value: Any, context: Context) -> None:
    if value is not None and not isinstance(value, bool | str | os.PathLike):
        raise TypeError(f"{name} should be a bool, a path or None, but got {type(value).__name__}")


def _memory_budget(name: str, value: Any, context: Context) -> None:
    if value is not None:
        parse_bytes(value)


def _prefetch_epochs(name: str, value: Any, context: Context) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} should be a bool, but got {type(value).__name__}")
    if value and not context.lasting:
        raise ValueError(
            "prefetch_epochs needs workers that outlive an epoch: pass persistent_workers=True as well"
        )
    if value and context.iterable:
        raise ValueError(
            "prefetch_epochs needs a map-style dataset: only the workers know when an iterable one ends"
        )


def _threads(name: str, value: Any, context: Context) -> None:
    _int(name, value)
    if value < 1:
        raise ValueError(f"{name} should be at least 1, but got {name}={shown(value)}")
    if value == 1:
        return
    given = f"but got {name}={shown(value)}"
    if executor_kind(context.executor).threads:
        raise ValueError(
            f"threads_per_worker is for worker processes: with executor={shown(context.executor)} raise num_workers instead, "
            f"{given}"
        )
    if context.iterable:
        raise ValueError(
            f"threads_per_worker fetches rows of a map-style dataset at once, and an iterable one gives them one after the other, "
            f"{given}"
        )
    if not context.batched:
        raise ValueError(
            f"threads_per_worker fetches the rows of a batch at once, and with batch_size=None there is one, {given}"
        )


# fmt: off
ARGUMENTS: tuple[Argument, ...] = (
    Argument(
        "dataset", "Dataset[T_co]", REQUIRED,
        "The samples: map-style or iterable.",
        positional=True, patchable=False,
    ),
    Argument(
        "batch_size", "int | None", 1,
        "Samples in a batch. None: the dataset gives whole batches.",
        positional=True, recorded=True, examined=True,
    ),
    Argument(
        "shuffle", "bool | None", None,
        "Draw the samples in a new order every epoch.",
        positional=True,
    ),
    Argument(
        "sampler", "Sampler[Any] | Iterable[Any] | None", None,
        "The order of indices, instead of `shuffle`.",
        positional=True, recorded=True, examined=True,
    ),
    Argument(
        "batch_sampler", "Sampler[list[Any]] | Iterable[list[Any]] | None", None,
        "The indices of each batch.",
        positional=True, examined=True,
    ),
    Argument(
        "num_workers", 'int | Literal["auto"]', 0,
        'Workers that make batches. 0: the training process does. "auto": the loader chooses.',
        positional=True, recorded=True, tunable=True, examined=True,
    ),
    Argument(
        "collate_fn", "Callable[[list[Any]], Any] | None", None,
        "Makes a batch of a list of samples.",
        positional=True, recorded=True, examined=True,
    ),
    Argument(
        "pin_memory", "bool", False,
        "Hand batches over in page-locked memory.",
        positional=True, recorded=True, tunable=True, examined=True,
    ),
    Argument(
        "drop_last", "bool", False,
        "Leave the last batch out when it is not full.",
        positional=True, recorded=True, examined=True,
    ),
    Argument(
        "timeout", "float", 0,
        "Seconds without a batch after which `next()` raises. 0: never.",
        positional=True, recorded=True, needs_workers=True, examined=True,
    ),
    Argument(
        "worker_init_fn", "Callable[[int], None] | None", None,
        "Called in each worker with its number, before the first sample.",
        positional=True, examined=True,
    ),
    Argument(
        "multiprocessing_context", "Any", None,
        "How worker processes start.",
        positional=True, tunable=True, needs_workers=True, examined=True,
    ),
    Argument(
        "generator", "torch.Generator | None", None,
        "Draws the order and the base seed.",
        positional=True, examined=True,
    ),
    Argument(
        "prefetch_factor", "int | None", None,
        "Batches that each worker may be ahead. None: 2, and more where it helps.",
        recorded=True, tunable=True, needs_workers=True, examined=True,
    ),
    Argument(
        "persistent_workers", "bool", False,
        "Keep workers between epochs.",
        recorded=True, tunable=True, needs_workers=True, examined=True,
    ),
    Argument("pin_memory_device", "str", "", "The device to pin for; deprecated by torch."),
    Argument(
        "in_order", "bool", True,
        "Deliver batches in the sampler's order. False: as they get ready.",
        recorded=True, examined=True,
    ),
    Argument(
        "executor", "Executor | Ray | None", None,
        "How batches are made: in processes, in threads, on a Ray cluster, or without workers.",
        owner="stoker", check=_executor, recorded=True, tunable=True, bisected=True,
    ),
    Argument(
        "device", "str | torch.device | None", None,
        'Where batches arrive, "cuda" for instance. "auto": the accelerator that there is. None: the CPU.',
        owner="stoker", check=_device, recorded=True, tunable=True,
    ),
    Argument(
        "device_prefetch", "int", 1,
        "Batches that are ahead on the device.",
        owner="stoker", check=_count, recorded=True, benched=True,
    ),
    Argument(
        "rng", "RngMode", "batch",
        "What random numbers depend on: the batch, the sample, or torch's workers.",
        owner="stoker", check=_one_of(RNG_MODES), recorded=True, bisected=True, benched=True,
    ),
    Argument(
        "restarts", "int", 2,
        "How often a batch whose worker died is tried again.",
        owner="stoker", check=_count, recorded=True, bisected=True,
    ),
    Argument(
        "on_bad_sample", "BadSampleMode", "raise",
        "What happens to a sample that raises, is None, or kills its worker.",
        owner="stoker", check=_one_of(BAD_SAMPLE_MODES), recorded=True, bisected=True, benched=True,
    ),
    Argument(
        "memory_budget", "int | str | None", None,
        'Bound on bytes made and not yet delivered, such as "2GiB".',
        owner="stoker", check=_memory_budget, recorded=True, benched=True,
    ),
    Argument(
        "split_batches", "bool | None", None,
        "Whether several workers may make the rows of one batch. None: where it pays.",
        owner="stoker", check=_bool_or_none, recorded=True, tunable=True, bisected=True,
    ),
    Argument(
        "threads_per_worker", "int", 1,
        "Rows of a batch that a worker process fetches at once, in threads.",
        owner="stoker", check=_threads, recorded=True, tunable=True, bisected=True,
    ),
    Argument(
        "snapshot_every_n_steps", "int", 1,
        "How often samplers and iterable datasets are asked for their state.",
        owner="stoker", check=_count_or_none,
    ),
    Argument(
        "prefetch_epochs", "bool", False,
        "Open the next epoch while the last batches of this one are made.",
        owner="stoker", check=_prefetch_epochs, recorded=True,
    ),
    Argument(
        "name", "str | None", None,
        "What this loader is called in messages and records.",
        owner="stoker", check=_text_or_none,
    ),
    Argument(
        "record", "bool | str | os.PathLike[str] | None", None,
        "Whether the record is kept, and the file it is appended to.",
        owner="stoker", check=_path_or_bool,
    ),
)
# fmt: on

BY_NAME: Mapping[str, Argument] = {each.name: each for each in ARGUMENTS}
OWN: tuple[Argument, ...] = tuple(each for each in ARGUMENTS if each.owner == "stoker")
"""stoker's own arguments."""


def check(
    *, num_workers: int, lasting: bool = True, iterable: bool = False, batched: bool = True, **own: Any
) -> None:
    """Check stoker's own arguments. Raises what torch would: ValueError for a wrong value, TypeError for a wrong type."""
    context = Context(num_workers, own.get("executor"), lasting, iterable, batched)
    for name, value in own.items():
        refuse = BY_NAME[name].check
        if refuse is not None:
            refuse(name, value, context)


@dataclass(frozen=True, slots=True)
class Options:
    """What the engine goes by. ``reasons`` says for each field whether the user, a rule or a default set it."""

    executor: str
    rng: str
    restarts: int
    on_bad_sample: str
    split_batches: bool
    memory_budget_bytes: int | None
    deepen: bool
    name: str
    reasons: dict[str, str] = field(default_factory=dict)
    threads: int = 1
    backend: Any = None
    """The object that was passed as ``executor``; None for a name."""

    @property
    def kind(self) -> ExecutorKind:
        """The traits of the executor."""
        return executor_kind(self.executor)


def resolve(
    *,
    executor: Any,
    rng: str,
    restarts: int,
    on_bad_sample: str,
    memory_budget: int | str | None,
    split_batches: bool | None,
    name: str | None,
    num_workers: int,
    prefetch_given: bool,
    threads_per_worker: int = 1,
    chosen_because: str | None = None,
) -> Options:
    """Fill in what the user left open. ``chosen_because`` is why there are so many workers, where the user did not say."""
    reasons: dict[str, str] = {}
    if chosen_because is not None:
        reasons["num_workers"] = f"auto: {chosen_because}"

    def chosen(key: str, given: bool, rule: str) -> None:
        reasons[key] = "given" if given else rule

    if num_workers == 0:
        kind: str = NO_WORKERS
        reasons["executor"] = "num_workers is 0"
        if threads_per_worker > 1:
            reasons["threads_per_worker"] = "not used: num_workers is 0"
    else:
        kind = executor_name(executor) or DEFAULT_EXECUTOR
        chosen("executor", executor is not None, "default")
    chosen(
        "split_batches",
        split_batches is not None,
        "on where it pays: torch's own collation in worker processes",
    )
    chosen(
        "memory_budget",
        memory_budget is not None,
        "a quarter of the memory available now, divided by local ranks and loaders at work",
    )
    chosen("deepen", prefetch_given, "prefetch_factor was left open")
    return Options(
        executor=kind,
        rng=rng,
        restarts=restarts,
        on_bad_sample=on_bad_sample,
        split_batches=True if split_batches is None else split_batches,
        memory_budget_bytes=None if memory_budget is None else parse_bytes(memory_budget),
        deepen=not prefetch_given,
        name=name or "loader",
        threads=threads_per_worker if num_workers else 1,
        reasons=reasons,
        backend=None if num_workers == 0 or isinstance(executor, str) else executor,
    )
