"""The soak: random scenarios of kills, stops, errors, slow rows and early ends, each checked batch for batch.

    scenario (drawn from a seed) ─► play ─► account ─► totals
                                     ├─ datasets: rows that misbehave from inside
                                     ├─ assailant: signals from outside
                                     └─ reading: one iterator against what is expected of it

`python -m tests.soak` plays scenarios in child processes for some minutes, so that a crash or a hang is one finding and
not the end; `--only SEED` plays one again. `tests/fault/test_soak.py` plays a fixed choice in the test run.
"""
