"""Puts the packed dataset into the object store, once for all nodes."""

from __future__ import annotations

import mmap
import os
import stat
from typing import Any

import numpy as np

from stoker._pickling.spec_pickle import SpecPickle
from stoker.errors import ClusterError, UnsendableError, coded


def put(ray: Any, packed: SpecPickle) -> list[Any]:
    """Return the references of the files of a packed spec: the packed dataset, then its segments.

    Segments of ``stoker.share`` are put as they are, not pickled. Raises UnsendableError for a part that belongs to this host,
    and ClusterError when the object store has no room.
    """
    refs = []
    for fd in (packed.fd, *packed.fds):
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise coded(UnsendableError(_bound_to_host(fd)), "STK324")
        refs.append(_put_file(ray, fd, found.st_size))
    return refs


def _put_file(ray: Any, fd: int, size: int) -> Any:
    if not size:
        return ray.put(np.empty(0, np.uint8))
    # Never closed here: the traceback of an error still holds the view.
    view = np.frombuffer(mmap.mmap(fd, size, prot=mmap.PROT_READ), np.uint8)
    try:
        return ray.put(view)
    except ray.exceptions.ObjectStoreFullError as error:
        told = (
            f"the dataset takes {size >> 20} MiB, and Ray's object store has no room for it: start the nodes with a larger "
            "--object-store-memory, or let the dataset read its data from files"
        )
        raise coded(ClusterError(told), "STK325") from error


def _bound_to_host(fd: int) -> str:
    link = os.readlink(f"/proc/self/fd/{fd}")
    return (
        f"the dataset holds something that exists on this machine only ({link}): a pipe, a queue or a lock of multiprocessing. "
        "It cannot travel to another host: make it in worker_init_fn, or use executor='process'"
    )
