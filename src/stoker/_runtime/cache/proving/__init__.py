"""Whether samples may be kept: what draws random numbers, and proof from other processes."""
