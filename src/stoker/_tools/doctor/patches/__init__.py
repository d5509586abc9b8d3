"""How changes are written into a source text so that all else stays as it is, byte for byte. Pure: text in, text out."""
