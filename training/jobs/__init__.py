"""Jobs: a folder and a process each, started in order by one supervisor per workspace. No torch in this package.

Begin with `job_folder.py` (what is known of a job, and its state, which is derived) and `job_requests.py` (submit,
find, end). `schedule.py` decides who is next, `leases.py` which devices they get and hold, `executor.py` where they
run. `launcher.py` is what the supervisor starts them by: on this machine each is forked from `fork_server.py`, a
process that has imported everything.
"""
