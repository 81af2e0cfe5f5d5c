"""Jobs on the machines of a Ray cluster: an agent on each, and a cluster daemon here. Only these two ever import
Ray."""
