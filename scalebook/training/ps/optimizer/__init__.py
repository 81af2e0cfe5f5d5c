"""The user's optimizer: made again on other tensors, told with every push, seen from a worker."""
