"""STK32x: what a Ray cluster has to have for a loader with ``executor="ray"``. Asked for with ``stoker doctor --ray``."""
