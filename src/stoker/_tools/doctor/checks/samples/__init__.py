"""STK4xx: samples and batches that break."""
