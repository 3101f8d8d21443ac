"""Fixtures of this folder's tests."""

from tests.catalog.servers import glue_server, glue_url, metastore, unity

__all__ = ["glue_server", "glue_url", "metastore", "unity"]
