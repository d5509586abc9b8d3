"""What has to be tried out to be known. Each runs in a sandbox, which has the target: ``probe(subject)``."""
