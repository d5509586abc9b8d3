"""What is beside the blocks of a page: what they need before, and what is to be seen after them."""
