"""The folder that stands first in PYTHONPATH of a script under stoker."""
