"""Journals: numbered immutable entries that add up to a key-value state with history.

All mutable state of a lake is in journals.
"""

from __future__ import annotations

from lake_core.journal.append import Append
from lake_core.journal.archive_rule import ArchiveRule
from lake_core.journal.codec import Codec, JsonCodec
from lake_core.journal.entry import Action, Add, Delete, Entry, Update
from lake_core.journal.journal import Journal
from lake_core.journal.naming import ZED_NAMING, Naming
from lake_core.journal.record import StateRecord
from lake_core.journal.state import State

__all__ = [
    "Action",
    "Add",
    "Append",
    "ArchiveRule",
    "Codec",
    "Delete",
    "Entry",
    "Journal",
    "JsonCodec",
    "Naming",
    "StateRecord",
    "State",
    "Update",
    "ZED_NAMING",
]
