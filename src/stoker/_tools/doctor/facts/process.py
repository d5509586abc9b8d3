"""The process that has loaded the target, before any worker is started: what a fork would copy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForkUnsafeLibrary:
    """A library with threads that do not survive a fork: its module and what the threads are."""

    module: str
    pool: str


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """Unknown values are None."""

    python_threads: tuple[str, ...]
    """Names of live Python threads beside the main one (and ours)."""
    native_threads: int | None
    """All threads, as the kernel counts them."""
    hazards: tuple[ForkUnsafeLibrary, ...]
    """Of ``_executors/hazards``: those whose threads live now."""
    modules: tuple[str, ...]
    """Names of loaded top-level packages that matter: cv2, polars, h5py, tokenizers, numexpr, mkl, ..."""
    accelerator: str | None
    """The kind of accelerator that is initialised here ("cuda"), else None."""
    default_device: str
    """torch's default device: "cpu" unless somebody set another."""
    sharing_strategy: str
    """torch.multiprocessing's: "file_descriptor" or "file_system"."""
    start_method: str
    """The platform's or what ``set_start_method`` says."""
    daemonic: bool
    """Whether this process is a daemonic child of multiprocessing."""
    interactive: bool
    """A notebook, a console or standard input: ``__main__`` has no file."""
    torch_threads: int
    threads_by_library: dict[str, int]
    """threadpoolctl's: prefix of a native library ("openblas", "libgomp") and its threads; "cv2" from cv2 itself."""
    versions: dict[str, str]
    tool_threads: tuple[str, ...] = ()
    """Those of ``python_threads`` that belong to a notebook, a debugger or a progress bar."""
