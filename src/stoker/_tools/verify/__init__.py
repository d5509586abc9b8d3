"""``stoker verify``: compares receipts of runs, ranks and legs, and says what it found in words."""
