"""What parent and worker share: messages, the status page, the worker's specification, packed errors."""
