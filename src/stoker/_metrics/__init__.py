"""Facts about the machine and the run. Reads /proc and /sys, changes nothing."""
