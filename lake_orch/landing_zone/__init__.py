"""Landing zones: files that others drop into a folder or prefix, each of which is to be in a table exactly once.

A sensor puts new files into numbered batches, and asks for one run a batch, in order. A batch's number is the version of the transaction
marker with which its rows are committed, so a batch that is tried again, or by two runs at once, is there once.
"""

from lake_orch.landing_zone.batch import LandedBatch
from lake_orch.landing_zone.definitions import batch_of, landing_zone_asset, landing_zone_definitions, landing_zone_sensor
from lake_orch.landing_zone.ledger import BatchRecord, LandedFile, Ledger
from lake_orch.landing_zone.zone import FoundFile, LandingZone

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
