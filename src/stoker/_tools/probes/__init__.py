"""Measurements that several tools share."""
