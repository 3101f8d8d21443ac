"""The transaction identifier of a write, which makes a repeated write a no-op.

A commit of a Delta table contains a `txn` action (appId, version). A write whose version is already in the table is
skipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

_MAX_SPELLED_OUT = 256
_PREFIX = "dagster"


def app_id(
    lineage: str, step_key: str, output: str = "", *, mapping_key: str | None = None, partition_keys: Sequence[str] = ()
) -> str:
    """Return the identity of one output of one step. All attempts at the output have it, and no other output has it.

    The asset alone is not enough, because then the second of two runs would lose its rows. `output` is empty for writes
    in a step's own code. Long lists of partition keys are hashed. The order of the keys does not matter.
    """
    keys: object = sorted(partition_keys)
    if len(json.dumps(keys)) > _MAX_SPELLED_OUT:
        keys = f"{len(partition_keys)} keys, sha256 {hashlib.sha256(json.dumps(keys).encode()).hexdigest()}"
    # JSON separates the parts for any characters in them.
    return _PREFIX + json.dumps([lineage, step_key, output, mapping_key, keys], separators=(",", ":"))


def parse_app_id(text: str) -> tuple[str, str] | None:
    """Return the step and the output of an identity that `app_id` made, also of one that is numbered behind it.

    Return None for any other text.
    """
    if not text.startswith(f"{_PREFIX}["):
        return None
    try:
        (_, step_key, output, *_), _ = json.JSONDecoder().raw_decode(text, len(_PREFIX))
    except ValueError:
        return None
    return (step_key, output) if isinstance(step_key, str) and isinstance(output, str) else None
