"""What the tuner reckons with, before a run and in one. Pure: numbers in, numbers out."""
