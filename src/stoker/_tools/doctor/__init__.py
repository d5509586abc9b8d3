"""The doctor: what is wrong, or will be, around ``num_workers``: named, with evidence and a fix."""
