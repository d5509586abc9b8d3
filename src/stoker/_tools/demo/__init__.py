"""``stoker demo``: what a loader costs on this machine, why, and what stoker changes. Acts, one after the other."""
