"""What only a machine with a GPU can show: `python -m tests.gpu` there, `--device cpu` anywhere else.

Needs torch and Lightning, nothing else, and no network. (`tests/test_gpu_suite.py` holds both.)
"""
