"""How a batch gets from a worker into the parent.

``base`` names the two sides as protocols; ``arena`` (parent) and ``writer`` (worker) are the shared-memory
transport; ``heap`` is the same codec over ordinary bytes, for executors without shared memory; ``codec``
turns objects into regions and a skeleton, and back.
"""
