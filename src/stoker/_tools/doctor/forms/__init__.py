"""Forms of a diagnosis for other readers than a terminal: one module each, ``render(diagnosis) -> str``."""
