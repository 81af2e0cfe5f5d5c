"""The notebook: its cells, and what is done with them."""
