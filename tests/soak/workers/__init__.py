"""The leg ``workers``: random scenarios of kills, stops, errors, slow rows and early ends, each checked batch for batch.

scenario (drawn from a seed) ─► play ─► account
                                 ├─ datasets: rows that misbehave from inside
                                 ├─ assailant: signals from outside
                                 └─ reading: one iterator against what is expected of it
"""
