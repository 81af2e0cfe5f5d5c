"""Jobs on the machines of a Ray cluster: an agent on each, and a courier here. Only these two ever import Ray."""
