"""Landing zones: ingestion of files from a folder or prefix into a dataset, each file exactly once.

A sensor groups new files into numbered batches, and requests one run for each batch, in order. A batch's number is the
version of the transaction identifier in its commit. So a batch that is retried, or landed by two runs at once, is in
the dataset once.
"""

from lake_orch.assets.landing.batch import LandedBatch
from lake_orch.assets.landing.ledger import BatchRecord, LandedFile, Ledger
from lake_orch.assets.landing.zone import FoundFile, LandingZone
from lake_orch.landing_zone.definitions import (
    batch_of,
    landing_zone_asset,
    landing_zone_definitions,
    landing_zone_sensor,
)

__all__ = [
    "BatchRecord",
    "FoundFile",
    "LandedBatch",
    "LandedFile",
    "LandingZone",
    "Ledger",
    "batch_of",
    "landing_zone_asset",
    "landing_zone_definitions",
    "landing_zone_sensor",
]
