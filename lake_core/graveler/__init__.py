"""The lakeFS data model: trees of value records in content-addressed SSTables, two levels deep.

A range holds consecutive records (key, identity, value); a metarange lists the ranges of one tree. Both are named by
their content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from lake_core.graveler.cache import RangeCache
    from lake_core.graveler.commit import Commit
    from lake_core.graveler.entry import AddressType, Entry
    from lake_core.graveler.errors import CorruptTable, GravelerError, MergeConflict
    from lake_core.graveler.export import Exported, export_commits
    from lake_core.graveler.graveler import Graveler
    from lake_core.graveler.identity import commit_id, entry_identity, file_id, range_id
    from lake_core.graveler.metarange import Metarange, RangeInfo
    from lake_core.graveler.profile import LAKEFS, SMALL_RANGES, Profile
    from lake_core.graveler.record import Record
    from lake_core.graveler.result import Built, RecordDifference, ThreeWay, TreeMerge
    from lake_core.graveler.table import Table, read_properties, read_sstable
    from lake_core.graveler.table_writer import write_sstable

__all__ = [
    "Graveler",
    "Record",
    "Entry",
    "AddressType",
    "Commit",
    "Built",
    "RecordDifference",
    "ThreeWay",
    "TreeMerge",
    "RangeInfo",
    "Metarange",
    "Profile",
    "SMALL_RANGES",
    "LAKEFS",
    "RangeCache",
    "Table",
    "read_properties",
    "read_sstable",
    "write_sstable",
    "range_id",
    "file_id",
    "entry_identity",
    "commit_id",
    "export_commits",
    "Exported",
    "GravelerError",
    "CorruptTable",
    "MergeConflict",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "AddressType": ".entry",
        "Built": ".result",
        "Commit": ".commit",
        "CorruptTable": ".errors",
        "Entry": ".entry",
        "Exported": ".export",
        "Graveler": ".graveler",
        "GravelerError": ".errors",
        "LAKEFS": ".profile",
        "MergeConflict": ".errors",
        "Metarange": ".metarange",
        "Profile": ".profile",
        "RangeCache": ".cache",
        "RangeInfo": ".metarange",
        "Record": ".record",
        "RecordDifference": ".result",
        "SMALL_RANGES": ".profile",
        "Table": ".table",
        "ThreeWay": ".result",
        "TreeMerge": ".result",
        "commit_id": ".identity",
        "entry_identity": ".identity",
        "export_commits": ".export",
        "file_id": ".identity",
        "range_id": ".identity",
        "read_properties": ".table",
        "read_sstable": ".table",
        "write_sstable": ".table_writer",
    },
)
