"""STK2xx: limits of the machine and the container."""
