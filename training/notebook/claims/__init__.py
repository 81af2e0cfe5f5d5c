"""Claims: what a notebook says of its runs, judged by their seeds and by nobody."""
