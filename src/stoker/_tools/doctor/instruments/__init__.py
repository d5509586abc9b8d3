"""What several probes measure and compare with. Everything here runs in a sandbox."""
