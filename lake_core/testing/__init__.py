"""For tests of stores and formats, here and elsewhere: contracts as test suites, and a store that fails on demand.

Needs pytest.
"""

from lake_core.testing.catalog_suite import CatalogSuite
from lake_core.testing.dataset_format_suite import DatasetFormatSuite
from lake_core.testing.fault_store import FaultStore, StoreDied
from lake_core.testing.manual_clock import ManualClock
from lake_core.testing.object_store_suite import ObjectStoreSuite, SharedObjectStoreSuite

__all__ = [
    "CatalogSuite",
    "DatasetFormatSuite",
    "FaultStore",
    "ManualClock",
    "ObjectStoreSuite",
    "SharedObjectStoreSuite",
    "StoreDied",
]
