"""Changed attributes of the dataset, brought to workers that run already: both sides."""
