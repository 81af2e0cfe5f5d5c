"""The headless half of Scalebook: models, data, strategies, the parameter server, jobs and records."""
