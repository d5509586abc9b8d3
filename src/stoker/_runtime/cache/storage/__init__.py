"""Where samples lie: the file, its entries, how a sample becomes bytes, and how processes come to one store."""
