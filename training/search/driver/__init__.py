"""The process that runs a search: asks for points, has them run as jobs, tells the study how they ended."""
