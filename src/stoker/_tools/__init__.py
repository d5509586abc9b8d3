"""What people run: doctor, tuner, profiler, report, demo. It sees records and the public loader, never the engine's inside."""
