"""Public names for reading run records. The code is in ``stoker._tools.report``."""
