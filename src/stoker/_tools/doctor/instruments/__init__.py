"""Measurements that several probes share. Everything here runs in a sandbox."""
