"""Tests of a config that need no study: a learning-rate range test, and the largest batch that fits."""
