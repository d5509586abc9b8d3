"""The acts of the demo. ``runner`` has their order."""
