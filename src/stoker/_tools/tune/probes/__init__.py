"""The tuner's measurements. Each module has ``probe(subject)``, which runs in the sandbox that has the target."""
