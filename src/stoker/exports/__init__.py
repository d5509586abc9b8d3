"""Exports the live record to other tools. Each module needs its tool's client library, and only when imported."""
