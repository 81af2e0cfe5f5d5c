"""The planner against numbers that others have published (`python -m tests.published`)."""
