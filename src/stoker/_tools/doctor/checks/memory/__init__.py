"""STK6xx: memory that grows or runs out."""
