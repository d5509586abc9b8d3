"""Executors move tasks and results, and report life and death of workers. They decide nothing."""
