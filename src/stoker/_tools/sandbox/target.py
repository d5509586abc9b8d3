"""Finds the target: ``package.module:object`` or ``path/to/file.py:object``. Runs in a sandbox, with user code."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from stoker._host.code_location import PACKAGE, is_library
from stoker._record.call_site import place
from stoker._tools.sandbox.subject import ASSUMED_BATCH, ASSUMED_WORKERS, Subject
from stoker.arguments import ARGUMENTS
from stoker.errors import TargetError

_FRAMES = 6
_TOOLS = os.path.join(PACKAGE, "_tools", "")


def load(text: str, *, batch_size: int | None = None, num_workers: int | None = None) -> Subject:
    """Import the module or file, follow the name, call what is to be called. Raises TargetError, and nothing else but exits."""
    where, path = parts(text)
    module = _module(where)
    value = _attribute(module, where, path)
    return subject_of(
        value,
        name=text,
        batch_size=batch_size,
        num_workers=num_workers,
        file=getattr(module, "__file__", None),
    )


def value_of(text: str) -> Any:
    """The object that a text names, as for a target; a file that was loaded is not run again. Raises TargetError."""
    where, path = parts(text)
    loaded = _loaded(where) if _is_file(where) else None
    return _attribute(_module(where) if loaded is None else loaded, where, path)


def _loaded(path: str) -> ModuleType | None:
    path = os.path.abspath(path)
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.abspath(file) == path:
            return module
    return None


def parts(text: str) -> tuple[str, str]:
    """The module or file, and the object in it. Raises TargetError for what can be seen to be wrong without importing anything."""
    where, _, path = text.rpartition(":")
    if not where or not all(part.isidentifier() for part in path.split(".")):
        raise TargetError(f"{text!r} names no object: write package.module:object or path/to/file.py:object")
    if _is_file(where) and not os.path.isfile(where):
        folder = os.path.dirname(where)
        names = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
        names = [each for each in names if os.path.isfile(os.path.join(folder, each))]
        near = difflib.get_close_matches(os.path.basename(where), names, 1)
        hint = f": did you mean {os.path.join(folder, near[0])}?" if near else ""
        raise TargetError(f"there is no file {where}{hint}")
    return where, path


def subject_of(
    value: Any,
    *,
    name: str = "dataset",
    batch_size: int | None = None,
    num_workers: int | None = None,
    file: str | None = None,
) -> Subject:
    """A dataset, a loader, several of them, or what returns one of these, as a subject. Raises TargetError."""
    if callable(value) and not _is_dataset(value) and not _is_loader(value):
        try:
            value = value()
        except Exception as error:
            raise _raised(f"{name} raised", error) from error
        called = f"{name}() returned"
    else:
        called = f"{name} is"
    found = _parts(value)
    if not found:
        raise TargetError(
            f"{called} {_kind(value)}: wanted is a Dataset, a DataLoader, or a function that returns one"
        )
    first, *others = found
    if _is_loader(first):
        arguments = {each.name: getattr(first, each.name, None) for each in ARGUMENTS if each.examined}
        dataset, loader = first.dataset, first
    else:
        arguments = {"batch_size": ASSUMED_BATCH, "num_workers": ASSUMED_WORKERS, "pin_memory": False}
        dataset, loader = first, None
    if batch_size is not None:
        arguments |= {"batch_size": batch_size, "batch_sampler": None}
    if num_workers is not None:
        arguments["num_workers"] = num_workers
    rest = tuple(each for each in others if _is_loader(each))
    return Subject(dataset, loader, rest, arguments, name, file)


def note_sites() -> None:
    """Have every loader of torch's that is made from now on remember where. For processes of the doctor's own."""
    from torch.utils.data import DataLoader

    original: Any = DataLoader.__init__

    @functools.wraps(original)
    def noting(self: Any, *args: Any, **options: Any) -> None:
        self._doctor_place = place(2)
        original(self, *args, **options)

    DataLoader.__init__ = noting  # type: ignore[method-assign]


def _module(where: str) -> ModuleType:
    try:
        return _import_file(where) if _is_file(where) else _import_name(where)
    except (TargetError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise TargetError(
            f"{where} ended the process when it was imported: sys.exit({error.code!r})", user_stack(error)
        ) from error
    except BaseException as error:
        raise _raised(f"{where} cannot be imported", error) from error


def _is_file(where: str) -> bool:
    return where.endswith(".py") or os.sep in where


def _import_name(name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    sys.argv = [name]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise  # it is there, and imports something that is not
        hint = f": did you mean {name}.py?" if os.path.exists(f"{name}.py") else ""
        raise TargetError(f"there is no module {error.name!r} to import from {os.getcwd()}{hint}") from None


def _import_file(path: str) -> ModuleType:
    """As ``python file.py`` would, but under its own name: workers can import its classes, and no main guard opens."""
    path = os.path.abspath(path)
    stem = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(path))
    sys.argv = [path]
    # A name that is taken (a file called "string.py") or that has dots cannot be imported again by a spawned worker.
    name = stem if stem not in sys.modules and "." not in stem else f"target_{stem.replace('.', '_')}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _attribute(module: ModuleType, where: str, path: str) -> Any:
    value: Any = module
    so_far = where
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            names = [each for each in dir(value) if not each.startswith("_")]
            near = difflib.get_close_matches(name, names, 3)
            said = (
                f": did you mean {' or '.join(near)}?" if near else _offered(value) if value is module else ""
            )
            raise TargetError(f"{so_far} has no {name!r}{said}") from None
        except Exception as error:
            raise _raised(f"{so_far}.{name} raised", error) from error
        so_far = f"{so_far}.{name}"
    return value


def _offered(module: ModuleType) -> str:
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (_is_loader(value) or _is_dataset(value) or getattr(value, "__module__", "") == module.__name__)
    ]
    return f": it has {', '.join(own[:8])}" if own else ""


def _parts(value: Any) -> list[Any]:
    """The loaders or datasets in it, the first being the subject; nothing when it is none."""
    if _is_loader(value):
        return [value]
    if isinstance(value, Mapping | list | tuple):
        several = list(value.values()) if isinstance(value, Mapping) else list(value)
        loaders = [each for each in several[:64] if _is_loader(each)]
        if loaders:
            return loaders
        datasets = [each for each in several[:64] if _is_torch_dataset(each)]
        if datasets:
            return datasets[:1]
        if isinstance(value, Mapping):
            return []
    return [value] if _is_dataset(value) else []


def _is_loader(value: Any) -> bool:
    from torch.utils.data import DataLoader

    return isinstance(value, DataLoader)


def _is_torch_dataset(value: Any) -> bool:
    from torch.utils.data import Dataset

    return isinstance(value, Dataset)


def _is_dataset(value: Any) -> bool:
    """torch's, or anything that can be indexed and has a length, which its loader takes as well."""
    if isinstance(value, type | str | bytes | Mapping):
        return False
    return _is_torch_dataset(value) or (
        hasattr(type(value), "__getitem__") and hasattr(type(value), "__len__")
    )


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _raised(what: str, error: BaseException) -> TargetError:
    said = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, SyntaxError) and error.filename:
        said += f" ({os.path.basename(error.filename)}, line {error.lineno})"
    hint = ""
    if isinstance(error, ImportError) and "relative import" in str(error):
        hint = " (name it as package.module:object, from the folder that holds the package)"
    return TargetError(f"{what}: {said}{hint}", user_stack(error))


def user_stack(error: BaseException) -> str:
    """The frames of an exception in files that are no library, innermost last; where there are none, where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not is_library(frame.filename)]
    kept = theirs[-_FRAMES:] or [each for each in frames if not each.filename.startswith(_TOOLS)][-1:]
    lines = (
        f'  File "{each.filename}", line {each.lineno}, in {each.name}\n    {each.line}' for each in kept
    )
    return "\n".join(lines)


def text_of(error: BaseException) -> str:
    """What an exception says; a class of the user's may fail at that too."""
    try:
        return str(error)
    except Exception as trouble:
        return f"(its text cannot be had: __str__ raised {type(trouble).__name__})"
