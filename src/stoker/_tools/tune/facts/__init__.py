"""What probes of the tuner tell: plain values."""
