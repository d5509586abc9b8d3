"""Turns a run record into what people read: verdict, screen, trace. It knows records, never the engine."""
