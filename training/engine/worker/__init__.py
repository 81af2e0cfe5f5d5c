"""The worker's end: joining, pulling, pushing, and which worker takes which batch."""
