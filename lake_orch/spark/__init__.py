"""Spark for steps: a separate session, a cluster, or a shared local Connect server."""
