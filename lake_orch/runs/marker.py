"""The transaction marker of a write: what makes a retried write a no-op.

A Delta table keeps `txn(appId, version)` with every commit; a write whose version it has seen already is skipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

SINGLE_BATCH = 1
"""The version of a write that is the only one of its output. Hands-on writers count on from here."""

_MAX_SPELLED_OUT = 256


def app_id(lineage: str, step_key: str, output: str = "", *, mapping_key: str | None = None, partition_keys: Sequence[str] = ()) -> str:
    """Return the identity of one output of one step: equal for every attempt at it, different for anything else.

    Never the asset alone: two runs would swallow one another's rows. `output` is empty for hands-on writers, which have
    no output of their own. Long lists of partition keys are hashed; the order of the keys does not matter.
    """
    keys: object = sorted(partition_keys)
    if len(json.dumps(keys)) > _MAX_SPELLED_OUT:
        keys = f"{len(partition_keys)} keys, sha256 {hashlib.sha256(json.dumps(keys).encode()).hexdigest()}"
    # JSON keeps the parts apart whatever characters they hold.
    return "dagster" + json.dumps([lineage, step_key, output, mapping_key, keys], separators=(",", ":"))
