"""What `scalebook ui` starts, watches and ends: the page server and MLflow's."""
