"""Jobs: a folder and a process each, started in order by one supervisor per workspace. No torch in this package."""
