"""The engine: the iterator, the only loop, and the pool of workers. It connects planner, scheduler, executor and transport."""
