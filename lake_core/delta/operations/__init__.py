"""The operations on a table. Each has its own module.

An operation is a function of a snapshot that writes data files and returns the `Operation` to commit, or None if there
is nothing to do. Work on many files is divided into picklable tasks, so that the same plan runs in this process
(`run_here`) and in Spark's executors.
"""
