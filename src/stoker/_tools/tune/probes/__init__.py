"""What has to be tried out to be known. Each runs in a patient, which has the target: ``probe(subject)``."""
