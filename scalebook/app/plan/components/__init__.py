"""These draw and return what the person wants; they read and write nothing."""
