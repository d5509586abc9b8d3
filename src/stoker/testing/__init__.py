"""Tools for tests, also for people who add a backend: the executor conformance suite and the leak guard.

    class TestMine(ExecutorConformance):
        def make_executor(self, spec, *, bound):
            return MyExecutor(spec, bound=bound)

pytest is not imported here and neither is torch: what a tool needs it imports when it runs.
"""

from stoker.testing.bench import Bench, Gate, pass_through
from stoker.testing.conformance import ExecutorConformance
from stoker.testing.leaks import Holdings, holdings, leak_guard, leaks_since

__all__ = [
    "Bench",
    "ExecutorConformance",
    "Gate",
    "Holdings",
    "holdings",
    "leak_guard",
    "leaks_since",
    "pass_through",
]
