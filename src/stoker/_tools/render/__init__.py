"""How reports and answers are written: HTML, Markdown, text, JSON, lines on a terminal."""
