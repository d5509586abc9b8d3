"""The computations of the tuner. Pure: numbers in, numbers out."""
