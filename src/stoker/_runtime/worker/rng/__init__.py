"""Random numbers of samples: seeded per row range, so they do not depend on workers."""
