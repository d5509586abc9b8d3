"""Fragments that the marks of several checks share. Regular expressions; a space stands for any white space."""

from __future__ import annotations

from stoker._tools.doctor.check import Mark

LOADER = (
    r"DataLoader worker|DataLoaderIter|DataLoader\.\w|torch[\\/]utils[\\/]data[\\/](?:\w+[\\/]){0,3}\w+\.py(?!:\d+: \w*Warning)|"
    r"stoker[\\/._]|^(?: *|-{1,}> *\d+ +| *❱ *\d+ +[│ ]*)for [^\n]{1,120} in [^\n]{0,60}[Ll]oader\w*\b[^\n]{0,40}:"
)
"""A loader took part: a frame of its code, its own words, or the line that iterates over it. Its mere name stands in progress
bars, options and warnings too."""
PIDS = r"\(pid(?:\(s\))?(?:[^)\n]{0,80}|[\d, ]{1,3000})\)"
"""The processes a message is about, of which there may be dozens; or what somebody wrote in their place."""
IN_WORKER = r"in DataLoader worker process|_utils[\\/]worker\.py|in _worker_loop|_worker[\\/](?:main|maker|stream)\.py"
"""It came out of a worker."""
FRAME = (
    r'File "[^"\n]{1,400}", line \d+|^File [^\n]{1,300}:\d+, in |^Cell In\[|^<ipython-input'
    r"|^-{1,}> ?\d+\b|^ {0,3}❱ ?\d+\b|^ ?[^\n]{1,300}\.py(?::\d+)? in [\w<]"  # notebooks of all ages, rich
    r"|^[^\s\"][^\n:]{0,200}\.py:\d+: (?:in [\w<]+|[A-Z]\w+)?$"  # pytest
)
"""There is a traceback: what is not in it did not take part."""
_BENEATH = (
    r"(?!(?:[^\n\"]{0,300}[\\/])?(?:multiprocessing[\\/]\w|torch[\\/](?:utils[\\/]data[\\/]|multiprocessing[\\/](?:reductions|queue)|"
    r"_utils\.py|storage\.py)|(?:runpy|threading|pickle|queue|socket|selectors)\.py|h5py[\\/]\w+\.p)|<string>|<frozen|\")"
)
"""Not a file that multiprocessing and torch's loader run through."""
OTHERS = (
    rf'File "{_BENEATH}[^"\n]{{1,400}}", line \d+|^File {_BENEATH}[^\n"]{{1,300}}:\d+, in |^Cell In\[|^<ipython-input'
    rf"|^ ?(?! *\d){_BENEATH}[^\n ]{{1,300}}\.py(?::\d+)? in [\w<]|^[^\s\"][^\n:]{{0,200}}\.py:\d+: (?:in [\w<]+|[A-Z]\w+)?$"
    r"|^[\w./-]{1,200}\.py: {2,}\S"  # what grep found in a program
)
"""There are frames of something else than multiprocessing and torch's loader. A loader's start in a child, and the tail of a
traceback, have none."""
TRAINERS = (
    r"(?:pytorch_lightning|lightning[\\/]pytorch)[\\/](?:trainer|loops)[\\/]|transformers[\\/]trainer\.py|"
    r"accelerate[\\/]data_loader\.py|ultralytics[\\/]engine[\\/]trainer\.py"
)
"""A framework's training loop was running, which iterates over loaders."""
RANKS = r"torch[\\/]multiprocessing[\\/]spawn\.py|launchers[\\/]multiprocessing\.py|ddp_spawn\.py"
"""Processes of ranks were being started."""
COLLATION = r"in \w*[Cc]ollat\w*|[\\/]collate\.py|\bcollate_fn\("
"""Samples were being put together: ``fetch.py`` stands in every traceback of a worker, what it calls does not."""
FOREIGN = r"CUDA out of memory|OutOfMemoryError|CUDA error|NCCL|DistBackendError|ChildFailedError"
"""Something else failed, and took the workers with it."""
NETWORK = r"urllib3|requests[\\/]|http[\\/]client\.py|aiohttp|botocore|s3fs|gcsfs|huggingface_hub|pymysql|psycopg|redis"
"""A connection to a server, which is none of the loader's."""
STARTING = (
    r"popen_(?:fork|spawn_\w+|forkserver)\.py(?!:\d+: \w*Warning)|"
    r"reduction\.py(?:\", line \d+,|:\d+,?)? in dump\b|in _launch\b|w\.start\(\)|"
    r"_Popen\(process_obj\)|multiprocessing[\\/]forking\.py|_get_iterator\b|def dump\(obj, file, protocol=None\)"
)
"""A process was being started."""
WITH_WORKERS = (
    r"\bnum_workers[\"']?\s{0,3}[=:]\s{0,3}[1-9]|--(?:num[-_])?(?:workers|nw)[ =][1-9]|\b[1-9]\d* num_workers"
)
"""Options or words that say that there were workers."""
NO_WORKERS = (
    r"(?ai:\b(?:num_?work\w*|num[-_ ]workers|workers_per_gpu|n_workers|workers)\b[`'\" ]{0,3}"
    r"(?:=|:|to|as|is|was|改[成为]|设[成为]|设置为|为)?[`'\" ]{0,3}0\b(?![.]\d))"
)
"""People tell that it goes without workers."""
ABOUT_LOADERS = r"(?ai:\bdata ?loa?der|\bnum_workers?\b)"
"""People tell what they did in words."""
FEEDING = r"multiprocessing[\\/]queues\.py\", line \d+, in _feed\b"
"""The thread of a queue was sending a batch."""
POOLS = (
    r"multiprocess(?:ing)?[\\/]pool\.py|concurrent[\\/]futures|joblib[\\/]|loky|billiard|celery|(?:Spawn|Fork)Pool|pathos[\\/]|"
    r"multiprocessing[\\/.]managers\b|SyncManager|tensorpack[\\/]|[\\/](?:uvicorn|gunicorn)\b|"
    r"Using TensorFlow backend|\bfit_generator\b|\buse_multiprocessing\b|\bgluon\.data\b|\bmxnet[\\/]|[\\/](?:keras|paddle)[\\/]\w|"
    r"DataLoader process \(pid|(?i:\bpaddle(?:paddle)?\b)"
)
"""Other ways to have processes, those of other frameworks among them."""
QUOTED_LOADER = (
    r"^(?:-{1,}>|❱)? {0,6}\d{1,5} [^\n]{0,200}(?:[Dd]ata|[Tt]rain|[Vv]al|[Vv]alid|[Tt]est|[Ee]val)_?[Ll]oader"
)
"""A notebook or rich quotes a line of a program that names a loader."""
ABOUT_TRAINING = (
    r"(?ai:\bdata ?loa?der|\bnum_workers?\b|torch|\btrain|\bepoch|\bworkers?\b|训练|訓練|学習|학습)"
)
"""People tell of a training, if no more than that."""
HANGING = (
    r"(?:(?<!may[ ])hangs?\b|hanging|hung\b|stuck|stall(?:s|ed|ing)|seizes? up\b|卡住|卡死|死锁|不动|"
    r"(?<!lead[ ]to[ ])(?<!avoid[ ])dead ?lock(?:s|ed|ing)?\b|(?<!even[ ])fr(?:eezes?|eezing|ozen?)\b)"
)
"""People say that nothing goes on."""
ERROR_LINE = r"^(?:\w+\.)*(?:\w+(?:Error|Exception)\b|(?:Error|Exception)\b(?! \w))"
"""An exception's own line: what people tell beside it is not needed."""


def by_a_loader(pattern: str, *, weight: int, never: tuple[str, ...] = ()) -> tuple[Mark, ...]:
    """Marks of what is raised while a process is started, where a loader starts it.

    A loader's frames say so, or a training loop's. Where only multiprocessing's frames are left, or none, nothing speaks
    against it.
    """
    return (
        Mark(pattern, also=(LOADER, STARTING), never=never, weight=weight),
        Mark(pattern, also=(TRAINERS, STARTING), never=(*never, RANKS, POOLS), weight=weight - 2),
        Mark(pattern, never=(*never, OTHERS, FEEDING, POOLS), weight=12),
    )


def told(words: str, *, weight: int = 5, never: tuple[str, ...] = ()) -> Mark:
    """A mark of what people tell of a loader in words of their own, within one line and without an exception's line."""
    loader = r"(?:data ?loa?ders?\b|num_work\w*|workers_per_gpu|torchdata\b|webdataset\b|multiprocessing_context\b)"
    return Mark(
        rf"(?ai)(?:\b|(?=[^\x00-\x7f]))(?:{words})[^\n]{{0,120}}\b{loader}"
        rf"|\b{loader}[^\n]{{0,120}}(?:\b|(?=[^\x00-\x7f]))(?:{words})",
        never=(ERROR_LINE, FOREIGN, POOLS, *never),
        weight=weight,
    )
