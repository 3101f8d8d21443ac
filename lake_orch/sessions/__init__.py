"""A run as one session of the lake: which one, who opens and publishes it, what gates it, and what becomes of it after a crash."""
