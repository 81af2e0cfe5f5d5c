"""The supervisor of a workspace: starts jobs in order, keeps drivers alive, watches, and closes what dies."""
