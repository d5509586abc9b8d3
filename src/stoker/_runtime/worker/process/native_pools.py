"""The names of threadpoolctl that stoker uses. Import them from here.

Importing threadpoolctl sets ``KMP_DUPLICATE_LIB_OK`` for the whole process and its children. That hides a clash of two OpenMP
libraries, which may give wrong numbers. So the variable is put back as it was.
"""

from __future__ import annotations

import os

_VARIABLE = "KMP_DUPLICATE_LIB_OK"
_was_set = _VARIABLE in os.environ

from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits  # noqa: E402

if not _was_set:
    os.environ.pop(_VARIABLE, None)

__all__ = ["ThreadpoolController", "threadpool_info", "threadpool_limits"]
