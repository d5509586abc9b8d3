"""STK3xx: how worker processes start and live."""
