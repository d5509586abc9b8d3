"""What training imports: the way of a batch from the sampler to the training loop."""
