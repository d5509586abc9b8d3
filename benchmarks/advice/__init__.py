"""Advice scored on what it was not made with: datasets for the doctor, training scripts for verdicts, workloads for ``tune``."""
