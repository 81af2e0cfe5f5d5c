"""What the trials of a search say about the space between them."""
