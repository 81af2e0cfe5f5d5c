"""What every run does beside training: measure, tell its progress, listen for a stop, notice divergence."""
