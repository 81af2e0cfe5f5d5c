"""What is done with a gradient, decided without a tensor: rules, dampings, settings. Imports no torch."""
