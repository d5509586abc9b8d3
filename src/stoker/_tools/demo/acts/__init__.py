"""The acts of the demo, in the order of ``_demo.programme``."""
