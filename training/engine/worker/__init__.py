"""The worker's end: joining, pulling, pushing, and which batches are whose."""
