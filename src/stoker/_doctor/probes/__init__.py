"""What has to be tried out to be known: one module per fact, ``probe(subject)``, which runs in a child process with limits.

A probe may hang, crash, or eat memory with the dataset it tries: the child pays for it, and the fact is then what happened.
"""
