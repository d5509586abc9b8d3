"""Seeds random generators so that the numbers of a sample do not depend on the worker that makes it."""
