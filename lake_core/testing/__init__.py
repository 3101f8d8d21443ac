"""For tests of what is built on object stores, here and elsewhere: the contract of a store, and a store that dies on demand.

Needs pytest.
"""

from lake_core.testing.fault_store import FaultStore, StoreDied
from lake_core.testing.object_store_suite import ObjectStoreSuite, SharedObjectStoreSuite

__all__ = ["FaultStore", "ObjectStoreSuite", "SharedObjectStoreSuite", "StoreDied"]
