"""Spark for steps: a session of their own, a cluster, or one local Connect server that they share."""
