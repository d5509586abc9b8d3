"""The thresholds that decide about causes, each with its reason. Calibrated by ``benchmarks.causes``."""

NOT_DATA = 0.02
"""Below this share of the time the loader is not the problem: a training step varies by as much."""
MODERATE = 0.05
HIGH = 0.20
"""The cuts of TensorFlow's profiler for an input-bound step."""
STARVED = {"quota": 0.20, "own": 0.35, "neighbours": 0.50}
"""Run-queue share of the time that workers wanted a CPU, beyond which they are starved, by who had it. A quota that throttles is
named at once: more workers would make it worse. As many workers as CPUs, beside the training loop, take turns a little by
themselves. Neighbours come and go: they are named when they cost more than the computing itself."""
CROWDED = 0.20
"""The same share, from which on it is worth a word beside another cause."""
ONE_START = 0.20
"""Another cause is named before a one-time start when it has at least this share of the waiting."""
LATE_WAKE_US = 2000.0
"""Median lateness of the consumer's wake-ups beyond which somebody holds the interpreter: its switch interval is 5 ms, and
an idle one is woken within 0.2 ms."""
OFF_FOR_GIL = 0.30
"""Share of a thread's time off the CPU that makes late wake-ups the GIL's: a single thread that computes is never off it."""
BUSY = 0.5
"""Share of their time on a CPU, or waiting for one, that makes workers ones that compute."""
SLOW = 5
"""A sample is called slow when it takes this many times the usual."""
SLOW_WORKER = 3.0
LEAST_BLAMED = 0.3
LEAST_WORKER_ROWS = 16
"""How many times as long as any other a worker has to take for a sample, with so many samples, and how much of the waiting it
has to have, to be named itself: workers that share their CPUs badly differ by less."""
HELD = 0.5
"""CPU time of threads that are off the CPU as well, over the time of the run, beyond which the training loop's own Python waits
for them too: all of them together can use one CPU."""
FULL = 0.8
MOST_HELD = 1.1
LATE_SHARE = 0.1
"""Threads that use about one CPU all together, are off it otherwise, and make so many wake-ups late share a lock, though the
median of wake-ups is not late: a thread that ends a batch gives the lock up by itself."""
LEAST_FOREIGN = 0.1
"""CPUs that others have to have used to be named for taking them."""
BANDWIDTH = 1.3
"""CPU time per row with many workers at work over that with few: honest compute stays below 1.1."""
LEAST_ROWS = 32
LEAST_CPU_NS = 50_000_000
"""Rows and CPU time on either side of that ratio: below it the clocks' grain and first touches decide."""
STORAGE = 0.20
"""Share of the waiting off the CPU during which the kernel counted I/O wait, that makes it storage at least in part."""
THROTTLED = 0.05
"""Share of the quota's periods with throttling; below it the quota was met by chance."""
MORE_THAN_ONE = 1.5
"""CPU time of a worker process over that of its batch-making thread, from which on it is several threads that compute."""
EXPLAINED = 0.25
"""Share of the time that workers are off the CPU, which CPU time of their other threads has to explain, to be waiting for these."""
LEAST_SHARE = 0.1
LEAST_TASK_NS = 2_000_000
"""What the other threads used has to be this much of the time at work, and a task this long: between tasks a worker uses
some CPU too."""

LOCKED = 0.3
"""Looks at workers that found them in the wait for a lock: two that share one and do nothing else are there half of the time."""

LEAST_LOOKS = 10
"""Fewer say nothing."""
