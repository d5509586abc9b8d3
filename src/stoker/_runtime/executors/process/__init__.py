"""Worker processes: started, fed, read from, and examined when they die."""
