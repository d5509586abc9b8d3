"""Which cause the waits of a run come down to."""
