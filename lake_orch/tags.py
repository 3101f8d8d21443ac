"""The names by which a run and what it wrote are found again: tags of runs, metadata of materializations and commits."""

from __future__ import annotations

# Tags of runs.
SCOPE_TAG = "lake/scope"
"""`run` or `asset`: what is published together. Goes before what an executor or a resource says."""
GATE_TAG = "lake/gate"
"""`blocking`, `error` or `none`: which failed checks keep a run's session from being published."""
HELD_GATE_TAG = "lake/held_gate"
"""The gate that a run's session is to pass, for whoever publishes it later with another resource."""
BRANCH_TAG = "lake/branch"
"""The branch that a run reads and publishes to, instead of the resource's."""
BACKFILLS_TAG = "lake/backfills"
"""`gather` or `publish`: what the runs of a backfill do, instead of what the resource says."""
SESSION_TAG = "lake/session"
"""The session that a run writes into."""
EPOCH_TAG = "lake/epoch"
"""The epoch at which the run opened or resumed its session: older writers are fenced."""
OWNER_TAG = "lake/run"
"""The run that these tags were written for: Dagster copies a run's tags to its re-executions."""
PUBLISHER_TAG = "lake/publisher"
"""Who publishes the run's session: `executor`, `testing`, `op` or `teardown`."""
ROOT_TAG = "lake/root"
"""Where the lake of the run's session lies, for whoever recovers it."""

# Metadata of materializations and observations.
STATE = "lake/state"
"""`staged` until the session is published, then, and without a session, `published`."""
STAGED, PUBLISHED = "staged", "published"
COMMIT = "lake/commit"
BRANCH = "lake/branch"
VERSION = "lake/version"
PATH = "lake/path"

# Metadata of commits.
RUN = "dagster/run"
STEP = "dagster/step"
OUTPUT = "dagster/output"
