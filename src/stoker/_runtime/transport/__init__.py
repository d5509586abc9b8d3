"""How a batch gets from a worker into the parent: slots of one shared arena."""
