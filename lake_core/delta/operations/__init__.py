"""What can be done to a table beside reading it and adding rows. One file an operation.

Each is a function of a snapshot that writes data files and returns the `Operation` to commit, or None where there is
nothing to do. Work on many files is split into picklable tasks, so that the same plan runs in this process (`run_here`)
and in Spark's executors.
"""
