"""STK1xx: what cannot travel to a worker, or travels badly."""
