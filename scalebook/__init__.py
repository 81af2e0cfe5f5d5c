"""Scalebook: an experiment notebook for scaling stochastic gradient descent."""
