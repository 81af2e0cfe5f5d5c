"""The study: where its trials are kept, what is tried next, which trials end early."""
