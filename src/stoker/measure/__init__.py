"""Public names for measuring torch's own loader. The code is in ``stoker._tools.profile``."""
