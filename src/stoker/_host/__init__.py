"""Facts of the machine: CPUs, cgroups, memory, limits, local ranks, where code lies. Reads /proc and /sys, changes nothing."""
