"""Marks of checks whose files are still to come, by code."""

from __future__ import annotations

from stoker._doctor.check import Mark
from stoker._doctor.wording import COLLATION, FEEDING, FRAME, IN_WORKER, LOADER, POOLS, STARTING

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
    "STK202": (
        Mark(r"Too many open files\. Communication with the workers is no longer possible", weight=30),
        Mark(
            r"unable to (?:open shared memory object|open file|mmap)[^\n]{0,300}Too many open files",
            weight=30,
        ),
        Mark(r"received \d+ items of ancdata", weight=28),
        Mark(
            r"unable to open shared memory object </[\w./-]+> in read[-/]write mode",
            never=(r"No such file or directory|No space left|File exists|Permission denied",),
            weight=20,
        ),
        Mark(
            r"[Tt]oo many open files",
            also=(
                rf"{IN_WORKER}|reductions\.py|resource_sharer|rebuild_storage|DataLoader worker|stoker|dataloader\.py",
            ),
            never=(r"uvicorn|nginx|http\.server|Accept failed|aiohttp",),
            weight=24,
        ),
        Mark(r"needs descriptors and the system refused them", weight=28),
    ),
    "STK203": (
        Mark(
            r"unable to mmap \d+ bytes from file </?(?:torch_[\w]+|"
            r"filename not specified)>: Cannot allocate memory",
            weight=28,
        ),
        Mark(r"unable to mmap memory: you tried to mmap 0 ?GB", weight=24),
        Mark(r"unable to allocate shared memory\(shm\)[^\n]{0,200}Cannot allocate memory", weight=24),
    ),
    "STK204": (Mark(r"does not have many workers which may be a bottleneck", weight=1),),
    "STK205": (
        Mark(r"AF_UNIX path too long", weight=25),
        Mark(r"No usable temporary directory found in", also=(rf"{LOADER}|multiprocessing",), weight=22),
        Mark(
            r"FileNotFoundError: \[Errno 2\] No such file or directory(?:: '[^'\n]*(?:pymp-|listener-)[^'\n]*')?",
            also=(
                LOADER,
                r"resource_sharer|SocketClient|address_type|pymp-|forkserver\.py",
            ),
            never=(r"torch_shm_manager",),
            weight=16,
        ),
        Mark(r"(?:Directory not empty|Device or resource busy): '[^'\n]*(?:pymp-|\.nfs0)[^'\n]*'", weight=14),
        Mark(r"the fork server needs a directory for its socket", weight=28),
    ),
    "STK206": (
        Mark(
            r"resource_tracker: There appear to be \d+ leaked (?:semaphore|shared_memory|folder|"
            r"file) objects? to clean up",
            weight=2,
        ),
        Mark(r"semaphore_tracker: There appear to be \d+ leaked semaphores? to clean up", weight=2),
        Mark(r"FileExistsError: \[Errno 17\] File exists: '/(?:psm_\w+|torch_\w+|\d{6}_\w+)'", weight=18),
        Mark(
            r"unable to open shared memory object </torch_\w+> in read[-/]write mode: File exists", weight=28
        ),
    ),
    "STK207": (
        Mark(r"\[WinError 1455\]", also=(rf"{LOADER}|spawn_main|multiprocessing",), weight=24),
        Mark(
            r"(?:Couldn't open shared file mapping|unable to open shared file mapping|"
            r"Couldn't map view of shared file)[^\n]{0,200}(?:error code: <(?:1455|8|5|0|87)>)?",
            weight=24,
        ),
        Mark(r"there is no room for the pages|memory that a batch needs cannot be had", weight=20),
    ),
    "STK208": (
        Mark(
            r"OSError: \[Errno 12\] Cannot allocate memory",
            also=(
                r"os\.fork\(\)|popen_fork|in _launch",
                LOADER,
            ),
            never=(POOLS,),
            weight=25,
        ),
        Mark(r"a worker process \(fork\) could not be started: Cannot allocate memory", weight=30),
    ),
    "STK209": (
        Mark(
            r"unable to open (?:shared memory object|file) </?(?:torch_\w+|"
            r"[\w./-]*torch_\w+)> in read[-/]write mode: No such file or directory",
            weight=28,
        ),
        Mark(r"could not unlink the shared memory file", weight=24),
        Mark(
            r"(?:error executing )?torch_shm_manager(?: at \"[^\"\n]{1,300}\")?[^\n]{0,80}(?:[Ee]rror|failed|"
            r"no response|could not|Connection refused|unable)|error executing torch_shm_manager",
            weight=22,
        ),
        Mark(r"Could not generate a random directory for manager socket", weight=22),
    ),
    "STK301": (
        Mark(
            r"An attempt has been made to start a new process before the current process has finished its "
            r"bootstrapping phase",
            also=(rf"{LOADER}|num_workers",),
            weight=30,
        ),
        Mark(
            r"An attempt has been made to start a new process before the current process has finished its "
            r"bootstrapping phase",
            never=(
                POOLS,
                r"ProcessPoolExecutor|in Pool\b",
            ),
            weight=25,
        ),
        Mark(r"^ *freeze_support\(\)", also=(LOADER,), weight=14),
        Mark(
            r"EOFError: Ran out of input",
            also=(
                r"spawn_main|in spawn\b|reduction\.pickle\.load",
                rf"{LOADER}|DataLoader",
            ),
            never=(
                r"torch[\\/]serialization\.py",
                r"[Cc]an(?:'t|not) pickle",
                r"Can't get local",
            ),
            weight=15,
        ),
        Mark(
            r"BrokenPipeError: \[Errno 32\] Broken pipe",
            also=(
                r"popen_spawn_win32\.py|popen_spawn_posix\.py",
                LOADER,
            ),
            never=(r"[Cc]an(?:'t|not) pickle",),
            weight=15,
        ),
    ),
    "STK302": (
        Mark(
            r"Can't get attribute '[\w.]+' on <module '__main__' \((?:built-in|"
            r"<class '_frozen_importlib\.BuiltinImporter'>|<_frozen_importlib[^\n]{0,80})\)>",
            weight=26,
        ),
        Mark(
            r"Can't get attribute '[\w.]+' on <module '__main__'",
            also=(r"spawn_main|forkserver|ipykernel|<stdin>|reduction\.pickle\.load",),
            never=(POOLS,),
            weight=24,
        ),
        Mark(r"(?:No such file or directory|Errno 2[0-9]?\][^\n]{0,60}): '[^'\n]*<stdin>'", weight=24),
        Mark(
            r"AttributeError: Can't get attribute '[\w.]+' on <module '__mp_main__'",
            also=(LOADER,),
            weight=22,
        ),
    ),
    "STK303": (
        Mark(
            r"Terminating: fork\(\) called from a process already using GNU OpenMP, this is unsafe", weight=25
        ),
        Mark(
            r"may have been in progress in another thread when fork\(\) was called",
            also=(rf"{LOADER}|num_workers|objc\[",),
            weight=22,
        ),
        Mark(
            r"The process has forked and you cannot use this CoreFoundation functionality safely", weight=22
        ),
        Mark(r"This class is not fork-safe", also=(rf"{LOADER}|fsspec|s3fs|gcsfs",), weight=22),
        Mark(r"OMP: Warning #190: Forking a process while a parallel region is active", weight=3),
        Mark(r"is multi-threaded, use of (?:fork|forkpty)\(\) may lead to deadlocks in the child", weight=3),
        Mark(r"os\.fork\(\) was called\. os\.fork\(\) is incompatible with multithreaded code", weight=3),
        Mark(r"calling into gRPC, skipping fork\(\) handlers|fork_posix\.cc:\d+\]", weight=3),
        Mark(r"do not survive the fork that starts the workers|would not survive a fork", weight=4),
    ),
    "STK304": (
        Mark(
            r"Cannot re-initialize (?:CUDA|XPU|HPU|NPU|\w+) in forked subprocess", also=(LOADER,), weight=30
        ),
        Mark(r"Cannot re-initialize (?:CUDA|XPU) in forked subprocess", never=(FRAME,), weight=25),
        Mark(
            r"(?:CUDA error|cuda runtime error \(3\) ?): initialization error|CUDA_ERROR_NOT_INITIALIZED",
            also=(IN_WORKER,),
            weight=26,
        ),
        Mark(
            r"cannot pin '[\w.]*cuda[\w.]*' only (?:dense )?CPU (?:tensors|memory) can be pinned", weight=26
        ),
        Mark(
            r"cannot pin '[\w.]+' only (?:dense )?CPU (?:tensors|memory) can be pinned",
            also=(LOADER,),
            weight=24,
        ),
        Mark(r"uses the accelerator inside a worker", weight=28),
    ),
    "STK305": (
        Mark(
            r"Expected an? '[\w:]+' device type for generator but found '[\w:]+'",
            also=(rf"{LOADER}|sampler\.py|randperm",),
            weight=26,
        ),
        Mark(
            r"Expected an? '[\w:]+' device type for generator but found '[\w:]+'", never=(FRAME,), weight=20
        ),
    ),
    "STK306": (
        Mark(r"daemonic processes are not allowed to have children", also=(LOADER,), weight=28),
        Mark(r"daemonic processes are not allowed to have children", never=(FRAME,), weight=20),
    ),
    "STK307": (
        Mark(
            r"OpenBLAS blas_thread_init: pthread_create failed for thread",
            also=(rf"{LOADER}|num_workers",),
            weight=20,
        ),
        Mark(
            r"libgomp: Thread creation failed: Resource temporarily unavailable",
            also=(rf"{LOADER}|num_workers",),
            weight=20,
        ),
        Mark(r"OMP: Error #(?:34|35|96)\b", also=(rf"{LOADER}|num_workers",), weight=20),
        Mark(
            r"OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system "
            r"being overloaded",
            weight=0,
        ),
    ),
    "STK401": (
        Mark(r"samples have different (?:shapes|lengths)", weight=30),
        Mark(r"stack expects each tensor to be equal size", also=(COLLATION,), weight=26),
        Mark(r"stack expects each tensor to be equal size", never=(FRAME,), weight=20),
        Mark(r"Trying to resize storage that is not resizable", also=(rf"{COLLATION}|{LOADER}",), weight=26),
        Mark(r"Trying to resize storage that is not resizable", never=(FRAME,), weight=20),
        Mark(
            r"Sizes of tensors must match except in dimension [01]",
            also=(
                COLLATION,
                LOADER,
            ),
            weight=24,
        ),
        Mark(r"each element in list of batch should be of equal size", weight=26),
        Mark(
            r"inconsistent tensor sizes?",
            also=(
                COLLATION,
                LOADER,
            ),
            weight=24,
        ),
        Mark(
            r"all input arrays must have the same shape|setting an array element with a sequence|"
            r"could not broadcast input array from shape",
            also=(
                r"collate",
                LOADER,
            ),
            weight=20,
        ),
    ),
    "STK402": (
        Mark(r"^ *(?:[\w.]+: )?sample(?:\[[^\n]{1,80}\])*: is None", weight=32),
        Mark(r"batch must contain [^\n]{1,120}; found <(?:class|type) 'NoneType'>", weight=30),
        Mark(r"Could not infer dtype of NoneType", also=(rf"{COLLATION}|{LOADER}",), weight=28),
        Mark(r"Could not infer dtype of NoneType", never=(FRAME,), weight=16),
        Mark(r"expected Tensor as element \d+ in argument 0, but got NoneType", also=(COLLATION,), weight=26),
        Mark(
            r"'NoneType' object (?:is not (?:subscriptable|iterable)|has no attribute)",
            also=(
                (
                    r"(?:in \w*collate\w*|collate\.py\", line \d+, in <\w+>)\n[^\n]*\n(?:[ ~^]*\n)?(?:Type|"
                    r"Attribute)Error: 'NoneType'"
                ),
                LOADER,
            ),
            weight=22,
        ),
        Mark(r"new\(\): data must be a sequence \(got NoneType\)", also=(COLLATION,), weight=24),
    ),
    "STK403": (
        Mark(
            r"samples are of different types|"
            r"^ *(?:[\w.]+: )?sample(?:\[[^\n]{1,80}\])*: key [^\n]{1,80} is missing",
            weight=32,
        ),
        Mark(r"batch must contain [^\n]{1,120}; found (?!<(?:class|type) 'NoneType'>)", weight=28),
        Mark(r"can't convert np\.ndarray of type numpy\.object_", also=(rf"{COLLATION}",), weight=26),
        Mark(
            r"(?:input types|result type \w+) can't be cast to the desired output type",
            also=(rf"{COLLATION}|{LOADER}",),
            weight=26,
        ),
        Mark(
            r"expected Tensor as element \d+ in argument 0, but got (?!NoneType)\w+",
            also=(
                COLLATION,
                LOADER,
            ),
            weight=24,
        ),
        Mark(
            r"KeyError: ",
            also=(r"in (?:\w*collate\w*|<listcomp>|<dictcomp>)\n[^\n]*\[key\][^\n]*\n(?:[ ~^]*\n)?KeyError",),
            weight=22,
        ),
        Mark(
            r"Expected object of (?:scalar )?type [\w.]+ but got (?:scalar )?type [\w.]+ for (?:sequence element|"
            r"argument)",
            also=(
                COLLATION,
                LOADER,
            ),
            weight=22,
        ),
        Mark(
            r"must be real number, not \w+|too many dimensions 'str'",
            also=(
                r"in (?:default_)?collate",
                LOADER,
            ),
            weight=20,
        ),
    ),
    "STK404": (
        Mark(r"Caught \w+(?: \w+)? in DataLoader worker process \d+", weight=9),
        Mark(r"^\w*Error: Traceback \(most recent call last\):", also=(r"in _worker_loop",), weight=9),
        Mark(
            r"in fetch\b",
            also=(
                r"_utils[\\/]fetch\.py",
                r"in __getitems?__",
            ),
            weight=7,
        ),
        Mark(r"Caught \w+(?: \w+)? in pin memory thread for device", weight=7),
        Mark(r"stoker: (?:while making the batch of|the batch of) dataset ind", weight=9),
    ),
    "STK405": (
        Mark(r"the dataset raised StopIteration for index|collate_fn raised StopIteration", weight=30),
        Mark(r"generator raised StopIteration", also=(LOADER,), weight=22),
        Mark(r"Caught StopIteration in DataLoader worker process", weight=26),
    ),
    "STK406": (
        Mark(
            r"(?:[Cc]annot|[Cc]an't|can not) (?:pickle|serialize) '?[\w.]+'? objects?\b",
            also=(FEEDING,),
            weight=24,
        ),
        Mark(r"Can't pickle ", also=(FEEDING,), weight=23),
        Mark(
            r"refusing to serialize non-leaf tensor which requires_grad",
            also=(rf"{FEEDING}|{LOADER}",),
            never=(STARTING,),
            weight=24,
        ),
        Mark(r"refusing to serialize non-leaf tensor which requires_grad", never=(FRAME,), weight=18),
        Mark(r"UnsendableError: batch", weight=32),
    ),
    "STK410": (
        Mark(
            r"TypeError: (?:[\w.<>]+\.)?__init__\(\) (?:missing \d+ required|got an unexpected keyword argument|"
            r"takes)",
            also=(
                r"in reraise\b|_ForkingPickler\.loads|self\.exc_type\(",
                LOADER,
            ),
            weight=26,
        ),
        Mark(
            r"Can't (?:pickle|get) (?:local object|<class) [^\n]{0,120}(?:Error|Exception|Failure|Bad)\w*'",
            also=(FEEDING,),
            weight=27,
        ),
    ),
    "STK502": (Mark(r"every worker (?:reads|repeats|yields) (?:the whole|all of the) stream", weight=4),),
    "STK506": (Mark(r"Detected at least one rank that exhausted inputs", weight=24),),
    "STK509": (
        Mark(r"on_bad_sample cannot go past this", weight=28),
        Mark(r"the stream ended right after its sample \d+ raised", weight=4),
    ),
    "STK510": (
        Mark(
            r"Length of IterableDataset [^\n]{1,200} was reported to be \d+ \(when accessing len\(dataloader\)\), "
            r"but \d+ samples have been fetched",
            weight=4,
        ),
    ),
    "STK511": (
        Mark(r"num_samples should be a positive integer value, but got num_samples=0", weight=22),
        Mark(r"IndexError: index \d+ is out of (?:bounds|range)", also=(IN_WORKER,), weight=4),
    ),
    "STK702": (Mark(r"suggested max number of worker in current system is \d+", weight=3),),
    "STK703": (
        Mark(r"'pin_memory' argument is set as true but (?:no accelerator is found|not supported)", weight=2),
    ),
    "STK706": (Mark(r"Consider setting `?persistent_workers=True`? in", weight=1),),
}
