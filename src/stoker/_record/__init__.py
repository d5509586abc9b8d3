"""Records what a run did with its data: the schema, the step rows, and the causes of waits. No torch."""
