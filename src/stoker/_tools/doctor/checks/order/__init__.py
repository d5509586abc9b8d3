"""STK5xx: order, randomness and sharding."""
