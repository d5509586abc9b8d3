"""Marks of checks whose files are still to come, by code."""

from __future__ import annotations

from stoker._doctor.check import Mark
from stoker._doctor.wording import FEEDING, FRAME, IN_WORKER, LOADER, POOLS, STARTING

MARKS: dict[str, tuple[Mark, ...]] = {
    "STK101": (
        Mark(r"cannot be sent to a worker:", weight=30),
        Mark(
            r"(?:[Cc]annot|[Cc]an't|can not) (?:pickle|serialize) (?!local\b)'?[\w.]+'? objects?\b",
            also=(
                LOADER,
                STARTING,
            ),
            weight=20,
        ),
        Mark(
            r"(?:[Cc]annot|[Cc]an't) (?:pickle|serialize) (?!local\b)'?[\w.]+'? objects?\b",
            never=(
                FRAME,
                FEEDING,
                POOLS,
            ),
            weight=12,
        ),
        Mark(r"[hH]5py objects cannot be pickled", also=(LOADER,), weight=20),
        Mark(r"[hH]5py objects cannot be pickled", never=(FRAME,), weight=12),
        Mark(
            r"no default __reduce__ due to non-trivial __cinit__",
            also=(
                LOADER,
                STARTING,
            ),
            weight=20,
        ),
        Mark(
            r"Can't pickle [^\n]{1,200}: it's not the same object as",
            also=(LOADER,),
            never=(FEEDING,),
            weight=20,
        ),
        Mark(r"which does not have a __getstate__ method defined", also=(LOADER,), weight=20),
        Mark(
            r"Could not pickle object as excessively deep recursion required|"
            r"RecursionError: maximum recursion depth exceeded while pickling",
            also=(
                LOADER,
                STARTING,
            ),
            weight=20,
        ),
    ),
    "STK102": (
        Mark(r"Can't (?:pickle|get) local object", also=(LOADER,), never=(FEEDING,), weight=21),
        Mark(r"Can't (?:pickle|get) local object", never=(FRAME,), weight=12),
        Mark(r"Can't pickle <function <lambda> at 0x", also=(LOADER,), never=(FEEDING,), weight=21),
        Mark(r"Can't pickle <function <lambda> at 0x", never=(FRAME,), weight=12),
        Mark(
            r"Can't pickle <(?:function|class) [^\n]{1,200}<locals>",
            also=(LOADER,),
            never=(FEEDING,),
            weight=21,
        ),
        Mark(
            r"Can't pickle <(?:function|class) [^\n]{1,200}: attribute lookup [^\n]{1,200} failed",
            also=(LOADER,),
            never=(FEEDING,),
            weight=21,
        ),
    ),
    "STK103": (
        Mark(
            r"Bad CRC-32 for file|Bad magic number for file header|"
            r"File name in directory [^\n]{1,300} and header [^\n]{1,300} differ",
            also=(IN_WORKER,),
            weight=20,
        ),
        Mark(
            r"bad object header version number|wrong B-tree signature|bad symbol table node signature|"
            r"bad local heap signature|bad heap free list|inflate\(\) failed|[Uu]nable to open object|"
            r"Can't read data \(|HDF5ExtError|Can't synchronously read data|addr overflow, addr =",
            also=(IN_WORKER,),
            weight=20,
        ),
        Mark(
            r"bad object header version number|wrong B-tree signature|Bad CRC-32 for file",
            also=(r"num_workers",),
            weight=12,
        ),
        Mark(
            r"zlib\.error: Error -[35] while decompressing|zstd[^\n]{0,40}(?:corrupt|Data corruption)|"
            r"LZ4F?[^\n]{0,40}(?:corrupt|failed)|invalid stored block lengths|incorrect header check",
            also=(IN_WORKER,),
            weight=18,
        ),
        Mark(
            r"tarfile\.ReadError|unexpected end of data",
            also=(
                IN_WORKER,
                r"tarfile",
            ),
            weight=18,
        ),
        Mark(
            r"MDB_BAD_RSLOT|MDB_CORRUPTED|MDB_PAGE_NOTFOUND|Invalid reuse of reader locktable slot", weight=20
        ),
        Mark(
            r"is already open in this process",
            also=(
                r"lmdb",
                LOADER,
            ),
            weight=20,
        ),
        Mark(
            r"SQLite objects created in a thread can only be used in that same thread|"
            r"database disk image is malformed|sqlite3\.\w+: disk I/O error",
            also=(IN_WORKER,),
            weight=20,
        ),
        Mark(
            r"DECRYPTION_FAILED_OR_BAD_RECORD_MAC|decryption failed or bad record mac|"
            r"lost synchronization with server|PGRES_TUPLES_OK and no message from the libpq|"
            r"SSL SYSCALL error: EOF detected|Commands out of sync",
            also=(IN_WORKER,),
            weight=20,
        ),
        Mark(
            r"seek of closed file|I/O operation on closed file|Bad file descriptor",
            also=(IN_WORKER,),
            never=(
                FEEDING,
                r"resource_sharer",
            ),
            weight=14,
        ),
    ),
    "STK104": (
        Mark(
            r"cannot (?:pickle|serialize) '?(?:_thread\.(?:R?Lock|lock)|_thread\._local|Thread|ThreadPoolExecutor|"
            r"_queue\.SimpleQueue)'? object",
            also=(
                LOADER,
                STARTING,
            ),
            weight=22,
        ),
        Mark(
            r"can't pickle (?:_thread\.(?:R?Lock|lock)|_thread\._local|_queue\.SimpleQueue) objects",
            also=(
                LOADER,
                STARTING,
            ),
            weight=22,
        ),
        Mark(r"cannot schedule new futures after (?:interpreter )?shutdown", also=(IN_WORKER,), weight=16),
    ),
    "STK105": (
        Mark(r"ValueError: too many fds", also=(rf"{LOADER}|forkserver|spawnv_passfds",), weight=25),
        Mark(r"^ValueError: too many fds", never=(FRAME,), weight=20),
    ),
    "STK106": (
        Mark(
            r"cannot serialize a (?:bytes|string|unicode) objects? larger than 4 ?GiB",
            also=(LOADER,),
            weight=20,
        ),
        Mark(r"'i' format requires -2147483648 <= number <= 2147483647", also=(LOADER,), weight=18),
        Mark(
            r"OSError: \[Errno 22\] Invalid argument",
            also=(
                LOADER,
                r"reduction\.py|popen_spawn",
            ),
            weight=16,
        ),
    ),
    "STK107": (
        Mark(
            r"refusing to serialize non-leaf tensor which requires_grad",
            also=(
                LOADER,
                STARTING,
            ),
            never=(FEEDING,),
            weight=22,
        ),
        Mark(r"Attempted to send CUDA tensor received from another process", also=(LOADER,), weight=20),
        Mark(r"Producer process has been terminated before all shared CUDA tensors released", weight=4),
        Mark(
            r"CUDA error: (?:invalid device context|peer access|OS call failed)",
            also=(
                LOADER,
                r"rebuild_cuda_tensor|reductions\.py",
            ),
            weight=18,
        ),
    ),
}
