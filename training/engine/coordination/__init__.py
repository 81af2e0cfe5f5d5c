"""What the processes of a run know of each other: who may begin, whose gradient is let in, who is there, measures."""
