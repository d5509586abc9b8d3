"""STK7xx: time that is wasted."""
