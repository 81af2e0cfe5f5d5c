"""Where shards live."""
