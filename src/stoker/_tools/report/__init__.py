"""From a run record to what people read: verdict, screen, trace. It knows records, never the engine."""
