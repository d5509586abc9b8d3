"""What parent and worker both know: messages, the status page, the worker's specification, failures."""
