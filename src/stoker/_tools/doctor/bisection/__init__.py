"""A failure that nobody knows is narrowed down by trials."""
