"""What the interpreter of a script under stoker runs before the script, in the place of the user's own module of this name.

The same holds for every Python process below it, unless these are not followed.

Python imports ``sitecustomize`` when it starts. The supervisor puts this folder first in PYTHONPATH; here it is taken out again,
stoker's part is armed, and the user's ``sitecustomize``, if there is one, is imported as if nothing had been. From then on Python
itself runs the script: ``__main__``, tracebacks, exit codes and the rest are its own.
"""

import os
import sys


def _begin() -> None:
    here = os.path.dirname(__file__)
    del sys.modules[__name__]
    sys.path[:] = [each for each in sys.path if each != here]
    sys.path_importer_cache.pop(here, None)
    try:
        from stoker._tools.profile import bootstrap
    except ImportError:  # stoker was found through the folder that the command was started in, say
        if os.environ.get("STOKER_FOLLOW", sys.prefix) != sys.prefix:
            return  # another Python, with packages of its own
        sys.path.append(os.path.abspath(os.path.join(here, *[os.pardir] * 3)))
        from stoker._tools.profile import bootstrap
    bootstrap.begin()


if __name__ == "sitecustomize":
    _begin()
    # Where there is none this raises what Python expects then.
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
