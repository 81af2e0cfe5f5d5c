"""Jobs as processes of this machine, forked from one that has imported everything."""
