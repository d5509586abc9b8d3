"""The folder that leads PYTHONPATH for the interpreter of a script under stoker."""
