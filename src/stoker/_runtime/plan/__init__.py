"""The sampler's side: which samples are made, in which order."""
