"""What the tuner computes with. Pure: numbers in, numbers out."""
