"""The doctor: finds what is broken around ``num_workers``, or soon will be, with evidence and a fix."""
