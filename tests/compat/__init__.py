"""Differential suite: torch's DataLoader and ours, same arguments, same meaning."""
