"""The engine: the only loop. It connects planner, scheduler, executor and transport."""
