"""Files that people and processes write: read safely, written atomically.

Begin with `records.py` (small files of one type each, by which processes know of each other), `yaml.py` (configs, with
the line of a mistake) and `safe_reading.py` (whatever is wrong with a file is said in one line).
"""
