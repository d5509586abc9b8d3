"""What a run did with its data: the record's schema, the rows of steps, and the causes of waits. No torch."""
