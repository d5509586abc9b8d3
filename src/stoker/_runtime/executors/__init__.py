"""Executors move tasks and results and report when workers start and end. They decide nothing."""
