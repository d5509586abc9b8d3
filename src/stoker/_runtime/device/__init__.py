"""The way to the accelerator."""
