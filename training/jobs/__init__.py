"""Jobs: a folder and a process each, started in order by one supervisor per workspace. No torch in this package.

Begin with `job_folder.py` (what is known of a job, and its state, which is derived) and `job_requests.py` (submit,
find, end). `schedule.py` decides who is next, `leases.py` which devices they get and hold, `executors.py` where
they run; `local/` runs them on this machine.
"""
