"""Experiment configs without torch: what they mean, whether they are right, and what to write where they are not."""
