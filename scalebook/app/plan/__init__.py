"""How a system would train with more workers: what it is made of, what is asked, what was found."""
