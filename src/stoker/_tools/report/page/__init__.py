"""Builds a report from records, in sections, and writes it as HTML, Markdown or text."""
