"""STK9xx: errors of stoker's own."""
