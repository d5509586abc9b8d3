"""Fuzzing: damaged and hostile inputs for every file and stream that stoker reads.

    formats/ (seed inputs, a reader, its errors) ─► mutation ─► guarded reading ─► campaign ─► failures

`python -m tests.fuzz --count N --seed S` reads N inputs; `--format NAME --only NUMBER` reads one of them again. An input is a
pure function of format, seed and number. `tests/fuzz/test_fuzz.py` reads a fixed choice in the test run, and
`tests/fuzz/test_structures.py` lets Hypothesis look for more. `--atheris NAME` is guided by coverage.
"""
