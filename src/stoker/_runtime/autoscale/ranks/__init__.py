"""Local ranks of one job agree on the number of workers: what each saw, the file they share, and the agreement."""
