"""What can be read from the text of the user's own files; nothing of it runs."""
