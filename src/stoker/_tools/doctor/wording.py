"""Fragments that the marks of several checks share. Regular expressions; a space stands for any white space."""

from __future__ import annotations

LOADER = (
    r"DataLoader worker|DataLoaderIter|DataLoader\.\w|torch[\\/]utils[\\/]data[\\/](?:_utils[\\/])?\w+\.py(?!:\d+: \w*Warning)|"
    r"stoker[\\/._]"
)
"""A loader took part: a frame of its code, or its own words. Its mere name stands in progress bars, options and warnings too."""
PIDS = r"\(pid(?:\(s\))?(?:[^)\n]{0,80}|[\d, ]{1,3000})\)"
"""The processes a message is about, of which there may be dozens; or what somebody wrote in their place."""
IN_WORKER = r"in DataLoader worker process|_utils[\\/]worker\.py|in _worker_loop|_worker[\\/](?:main|maker|stream)\.py"
"""It came out of a worker."""
FRAME = (
    r'File "[^"\n]{1,400}", line \d+|^File [^\n]{1,300}:\d+, in |^Cell In\[|^<ipython-input'
    r"|^-{2,}> ?\d+\b|^ {0,3}❱ ?\d+\b|^ ?[^\n]{1,300}\.py(?::\d+)? in [\w<]"  # notebooks of all ages, rich
)
"""There is a traceback: what is not in it did not take part."""
COLLATION = r"in \w*[Cc]ollat\w*|[\\/]collate\.py|\bcollate_fn\("
"""Samples were being put together: ``fetch.py`` stands in every traceback of a worker, what it calls does not."""
FOREIGN = r"CUDA out of memory|OutOfMemoryError|CUDA error|NCCL|DistBackendError|ChildFailedError"
"""Something else failed, and took the workers with it."""
NETWORK = r"urllib3|requests[\\/]|http[\\/]client\.py|aiohttp|botocore|s3fs|gcsfs|huggingface_hub|pymysql|psycopg|redis"
"""A connection to a server, which is none of the loader's."""
STARTING = (
    r"popen_(?:fork|spawn_\w+|forkserver)\.py|reduction\.py\", line \d+, in dump\b|in _launch\b|w\.start\(\)"
)
"""A process was being started."""
FEEDING = r"multiprocessing[\\/]queues\.py\", line \d+, in _feed\b"
"""The thread of a queue was sending a batch."""
POOLS = r"multiprocessing[\\/]pool\.py|concurrent[\\/]futures|joblib[\\/]|loky|billiard|celery"
"""Other ways to have processes."""
