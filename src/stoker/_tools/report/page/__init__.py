"""A report to look at: sections made of records, and the forms they are written in (HTML, Markdown, text)."""
