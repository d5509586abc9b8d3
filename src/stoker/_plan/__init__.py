"""The sampler's side: what is to be made, in which order."""
