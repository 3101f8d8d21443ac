"""Zed lakes of format version 3: pools of records of any type, byte for byte as the `zed` command writes them.

The modules: `lake` is a lake and `pool` is one of its pools. `config` describes pools and branches, and
`config_journal` stores them by name. `commit`, `action` and `commit_store` hold the history of a pool; `data_object`,
`object_reader`, `object_writer` and `seek_index` its files. `scan` reads a pool in its order (`order`, `merge`,
`key_range`, `filter`), `load` writes to it (`rows`, `object_sorter`). Large numbers of values stay encoded: a
`value_batch` holds many values, a `batch_list` several of these, a `key_column` their keys, and a `sorted_batch` holds
them in the pool's order.

`types` are the types of the Zed data model, `value` its values: a type and a body, which `primitive` and `type_value`
encode. `zng` is the binary format of values, `zson` their text, `ndjson` the part of them that JSON can express.
`arrow` converts ZNG to columns and tables, and back; `fused_type` is the type that several types have in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from lake_core.pool.commit import Commit
    from lake_core.pool.config import BranchConfig, Order, PoolConfig
    from lake_core.pool.data_object import DataObject
    from lake_core.pool.lake import PoolLake
    from lake_core.pool.pool import Pool
    from lake_core.pool.scan import Scan

__all__ = ["BranchConfig", "Commit", "DataObject", "Order", "Pool", "PoolConfig", "PoolLake", "Scan"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "BranchConfig": ".config",
        "Commit": ".commit",
        "DataObject": ".data_object",
        "Order": ".config",
        "Pool": ".pool",
        "PoolConfig": ".config",
        "PoolLake": ".lake",
        "Scan": ".scan",
    },
)
