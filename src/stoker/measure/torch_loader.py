"""Measures torch's own ``DataLoader`` in this process, into the same run record as stoker's."""

from stoker._tools.profile.torch_loader.install import install, uninstall

__all__ = ["install", "uninstall"]
