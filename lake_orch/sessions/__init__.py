"""A run as one session of the lake, as jobs and definitions have it: executor, jobs, ops, sensors, automation, recovery after a crash."""
