"""The live record for other tools: each module needs the client library of its tool, an extra, and only when it is imported."""
